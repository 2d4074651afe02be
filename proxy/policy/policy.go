// Package policy chooses how a tensor travels: which codec, or none, and why.
//
// A Policy is a list of rules of which the first that matches wins, and lossless coding where none does. Whatever a
// rule says, loss is possible only where the parser has proof of the role: a lossy codec on anything but a gradient,
// an aggregate whose job opts in, or, by a rule that names state, its difference to what the receiver holds, becomes
// lossless.
//
// Small tensors (biases, normalization layers), which papers leave uncompressed since that would cost more than it saves,
// are a rule as well, before that of the codec: Rule{MaxBytes: 4096, Codec: Verbatim}, in a configuration
// {max_bytes: 4KiB, codec: verbatim}. A rule with MinBytes alone leaves what is smaller to the rules after it, and without
// one to lossless coding, or to nothing at all under [MinBytes].
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
	// f: protocol, direction and ends of the connection; m: the rate and RTT that the sender has seen.
	Choose(f Flow, t tensor.Tensor, m Measured) Choice
}

// A Choice is a Policy's answer.
type Choice struct {
	Codec    codecs.Codec // nil: verbatim
	Feedback bool         // what a lossy Codec loses is added to the tensor's next value

	// Closed says that what is coded is the difference to the value that the receiver holds, so that what a lossy Codec loses
	// of one value is in the next difference. State that is coded otherwise must lose nothing.
	Closed bool

	Flush int           // every so many values one travels exactly, with what is owed, if anything, added; 0: never
	Why   tensor.Reason // OK where a rule chose the codec; else why not
}

// A Flow is one direction of a connection, as rules can tell it from others.
type Flow struct {
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

// Measured is what the sender has seen of the path to the peer; zero where it has not.
type Measured struct {
	Rate int64 // bytes per second that the path has carried at most of late
	RTT  time.Duration
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
	// gradients alone: what else comes to the rule loses nothing.
	NoFeedback bool

	// FlushEvery makes every so many values of a tensor one travel exactly, with all that is owed to it added, so that
	// nothing is; 0: never. It brings replicas together that add up what they receive, and them only. Of state it is every
	// so many values that arrive exactly as they are.
	FlushEvery int
}

// Verbatim is the Codec text of a rule whose tensors are not touched at all.
const Verbatim = "verbatim"

// MinBytes is the size in bytes under which a tensor travels verbatim where no rule speaks of it: its header and
// its share of a frame outweigh what coding saves.
const MinBytes = 1024

// MinShared is the same of tensors whose values the peer may hold already: a reference to them is shorter.
const MinShared = 256

// LeastBlock is the fewest bytes of a tensor that a codec may want at once: each block takes a header, and a coder at both
// ends.
const LeastBlock = 256

// Check returns why no rule can name c, or nil.
func Check(c codecs.Codec) error {
	if n := c.Block(1 << 30); n < LeastBlock {
		return fmt.Errorf("%v cuts tensors into blocks of %d bytes, and each has a header: give it block=%d or more", c, n, LeastBlock/4)
	}
	return nil
}

// AggregateCodec is what a job's aggregates travel with where it lets them lose something and no rule speaks of them.
const AggregateCodec = "int4"

// New compiles rules. Codec texts are made codecs by the function newCodec; lossless is its codec for whatever no rule
// allows to lose anything, and AggregateCodec must exist as well. An error names the rule by its place, from 1.
func New(rules []Rule, newCodec func(text string) (codecs.Codec, error)) (Policy, error) {
	lossless, err := newCodec("lossless")
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	aggregate, err := newCodec(AggregateCodec)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p := &ruleList{lossless: lossless, aggregate: aggregate}
	for i, r := range rules {
		c := compiled{Rule: r}
		if r.Codec != Verbatim {
			if c.codec, err = newCodec(r.Codec); err == nil {
				err = Check(c.codec)
			}
			if err != nil {
				return nil, fmt.Errorf("policy: rule %d: %w", i+1, err)
			}
		}
		p.rules = append(p.rules, c)
	}
	return p, nil
}
