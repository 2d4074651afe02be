// Package policy chooses how a tensor travels: which codec, or none, and why.
//
// A Policy is a list of rules. The first rule that matches wins; where none does, coding is lossless. Whatever a rule
// says, loss is possible only where the parser has proof of the role, or the user's word for the sums of a job: a lossy
// codec on anything but a gradient, an aggregate whose job opts in, or, by a rule that names state, its difference to
// the value that the receiver holds, becomes lossless, or verbatim under [MinBytes].
//
// Small tensors (biases, normalization layers), which papers leave uncompressed since that would cost more than it
// saves, are a rule as well, before that of the codec: Rule{MaxBytes: 4096, Codec: Verbatim}, in a configuration
// {max_bytes: 4KiB, codec: verbatim}. A rule with MinBytes alone leaves smaller tensors to the rules after it, and
// without one to lossless coding, or to nothing at all under [MinBytes].
package policy

import (
	"fmt"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/tensor"
)

// A Policy chooses how a tensor travels. It is asked at each new value of the tensor (Off is 0); an
// answer unlike the last one declares the tensor's slots anew, and the next encoder with feedback inherits the
// residual (while the tensor travels exactly it waits). A Policy is safe for concurrent use.
type Policy interface {
	// Choose is given protocol and direction of the connection, and the sender's measurements of path and tensor.
	Choose(f Flow, t tensor.Tensor, m Measured) Choice
	// Saw is told the result of each block that was coded: by which codec (its text), from raw to wire bytes, in the
	// time that coding took on one core. It must see to it that h, the History of t that Choose is given with its next
	// value, has the result.
	Saw(f Flow, t tensor.Tensor, h *History, codec string, raw, wire int, took time.Duration)
}

// A Choice is a Policy's answer.
type Choice struct {
	Codec    codecs.Codec // nil: verbatim
	Feedback bool         // the loss of a lossy Codec is added to the tensor's next value

	// Closed says that the difference to the value that the receiver holds is coded, so that the loss of a lossy Codec
	// in one value is in the next difference. State that is coded otherwise must lose nothing.
	Closed bool

	Flush int           // every so many values one travels exactly, with the residual, if there is one, added; 0: never
	Why   tensor.Reason // OK where a rule chose the codec; else why not

	// NoGain says that coding the tensor by a lossless Codec has not paid of late: its value should travel verbatim,
	// unless the peer wants it in its store.
	NoGain bool
	// Watch says that the tensor loses nothing yet, and may lose something once it has proved to be a gradient: the
	// sender should remember its values for the content check.
	Watch bool
}

// A Flow is one direction of a connection, as rules can tell it from others.
type Flow struct {
	Peer            string
	Job             string
	Protocol        string
	Direction       Direction
	LossyAggregates bool // the job's configuration lets sums that replicas share lose something
}

// A Direction is the way of a flow, seen from the end that sent SYN.
type Direction uint8

const (
	FromClient Direction = iota
	FromServer
)

// String returns the name that rules and metrics use.
func (d Direction) String() string {
	if d == FromServer {
		return "from_server"
	}
	return "from_client"
}

// A Rule says with which codec the tensors travel that match all its fields. A zero field matches everything.
type Rule struct {
	Job       string
	Protocol  string
	Direction *Direction
	Roles     []tensor.Role
	DTypes    []tensor.DType
	MinBytes  int    // of the whole tensor
	MaxBytes  int    // of the whole tensor; 0: no limit
	Codec     string // codec text, or Verbatim

	// NoFeedback leaves out the error feedback of a lossy codec of gradients. Aggregates never go without: replicas
	// would drift apart at random. Methods that are right on average (codecs.Traits) never have it, and are for
	// gradients alone: other tensors that come to the rule lose nothing.
	NoFeedback bool

	// FlushEvery is N if one of N values of a tensor travels exactly, with the whole residual added; 0: none does.
	// It brings replicas together that add up the values that they receive, and no others. For state, one of N values
	// arrives exactly as it is.
	FlushEvery int
}

// Verbatim is the Codec text of a rule whose tensors are not touched at all.
const Verbatim = "verbatim"

// MinBytes is the size in bytes under which a tensor travels verbatim where no rule speaks of it: its header and
// its share of a frame outweigh the saving.
const MinBytes = 1024

// MinShared is the same of tensors whose values the peer may hold already: a reference to them is shorter.
const MinShared = 256

// MinBlock is the minimum of the bytes of a tensor that a codec may want at once: each block takes a header, and a
// coder at both ends.
const MinBlock = 256

// Check returns why no rule can name c, or nil.
func Check(c codecs.Codec) error {
	if n := c.Block(1 << 30); n < MinBlock {
		return fmt.Errorf("%v cuts tensors into blocks of %d bytes, and each has a header: give it block=%d or more", c, n, MinBlock/4)
	}
	return nil
}

// AggregateCodec is the codec of a job's aggregates where it lets them lose something and no rule speaks of them.
const AggregateCodec = "int4"
