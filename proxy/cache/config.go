package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/proxy/frame"
	"github.com/gradproxy/gradproxy/proxy/internal/pipe"
	"github.com/gradproxy/gradproxy/proxy/memory"
	"github.com/gradproxy/gradproxy/proxy/tunnel"
	"github.com/gradproxy/gradproxy/tensor"
)

// Name is the name under which hellos list, among codecs, that a proxy has a value cache.
const Name = "reference"

// Short is the name under which hellos list, among codecs, that a proxy takes values of the form frame.FormShort:
// package reference's head as it is, and then the short form of the codec's own encoding, as coder.Short says.
// Differences of an embedding are mostly zeros.
const Short = "short-values"

// ErrLost says that a Ref cannot be delivered, since the stream of its value has ended.
var ErrLost = errors.New("proxy: the shared values are lost: their stream has ended")

// A Stream is a value stream; *tunnel.Stream is one.
type Stream interface {
	ReadChunk() ([]byte, error)
	Write(p []byte) (int, error)
	Close() error
	Reset(code tunnel.Code)
}

// Metrics counts the work of a Cache.
type Metrics interface {
	Encoded(codec string, role tensor.Role, took time.Duration)
	Decoded(codec string, role tensor.Role, took time.Duration)
	Sent(peer, job, codec string, role tensor.Role, raw, wire int)
	FellBack(codec string, role tensor.Role, why tensor.Reason)
	// Erred takes the norm of the part of a value that the peer lacks over the norm of the value.
	Erred(codec string, role tensor.Role, relative float64)
	// Drifts counts that the values of a job, held by the peer, were found to drift from the app's own.
	Drifts(job string)
	// SharedValue counts a value by how it was put (whole, difference, reverse, again), or evicted.
	SharedValue(how string) // one of SharedHow
	// WrongReference counts a value whose reference is not the one that this end holds.
	WrongReference()
}

// Config has the parts of a Cache. All fields are needed but for the functions that may be nil.
type Config struct {
	// Room is the bytes of values for each peer, each way. Negative: the Cache holds and puts none.
	Room int64
	// Open opens a stream to a peer, with the bytes that describe it.
	Open               func(ctx context.Context, peer string, opening []byte) (Stream, error)
	Codecs             func(text string) (codecs.Codec, error)
	Lossless           codecs.Codec
	Workers            *pipe.Pool
	Pool               *memory.Pool
	Sending, Receiving *memory.Budget
	Metrics            Metrics
	Frames             *frame.Counts // of frames that have come; nil: nobody counts them
	Log                *slog.Logger
	// Pace waits until encoded bytes of a peer may become decoded bytes, or gone is closed; nil: they may at once.
	Pace func(peer string, encoded, decoded int, gone <-chan struct{})
	// Schedule returns a function that waits until work on a frame of a peer's value stream may begin, and returns the
	// function that ends it; nil: it may at once.
	Schedule func(peer string) func() (end func())

	drift *sentinel // of all peers
}

// pipeDepth is how many values may be under way between a caller of Put and the tunnel, or between the tunnel and the
// store.
const pipeDepth = 8

// SharedHow lists what happens to shared values, as metrics name it: a value is put whole, put as a difference to the
// last value or to a value of the reverse direction, or referred to again; or it is evicted.
var SharedHow = []string{"whole", "difference", "reverse", "again", "evicted"}
