// Package flowersim speaks the wire of Flower's start_server and start_client, the call FlowerService/Join, for demos
// and tests: a server that asks its clients one by one or at the same time, and clients that answer. It is gRPC over
// HTTP/2 without TLS; the messages are the same in every release of Flower (flwr/proto/transport.proto).
//
//	server to client   3 get_parameters_ins, 4 fit_ins {1 parameters}, 5 evaluate_ins {1 parameters}, 1 reconnect_ins: the end
//	client to server   3 get_parameters_res {1 status, 2 parameters}, 4 fit_res {1 status, 2 parameters, 3 num_examples}, 5 evaluate_res {1 status, 3 num_examples}
//	parameters         {1 tensors: a .npy file each, 2 tensor_type}
//
// It also has the messages of Flower's other calls, which carry objects or record sets, for the tests of the parser:
// functions that return the message of a node or of a server, over gRPC or HTTP.
package flowersim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Kind is the kind of a request.
type Kind protowire.Number

// Kinds, by the fields of Flower's messages.
const (
	End           Kind = 1 // of the training
	GetParameters Kind = 3 // to begin with
	Fit           Kind = 4 // train these, and send the result
	Evaluate      Kind = 5 // test these
)

// A Message is a request of the server, or a client's answer of the same Kind.
type Message struct {
	Kind   Kind
	Arrays [][]float32
}

var errMessage = errors.New("flowersim: not a message of Flower")

// append appends the message as one side sends it.
func (m *Message) append(b []byte, server bool) []byte {
	var parameters []byte
	if m.Arrays != nil {
		files := make([][]byte, len(m.Arrays))
		for i, a := range m.Arrays {
			files[i] = npy(a)
		}
		parameters = Parameters(files)
	}
	if server {
		return append(b, Request(m.Kind, parameters)...)
	}
	return append(b, Answer(m.Kind, parameters)...)
}

// parse reads a message that one side has sent.
func parse(b []byte, server bool) (m Message, err error) {
	n, content, _, err := next(b)
	if err != nil {
		return m, err
	}
	m.Kind = Kind(n)
	of := protowire.Number(2)
	if server {
		of = 1
	}
	for len(content) > 0 {
		n, parameters, rest, err := next(content)
		if err != nil {
			return m, err
		}
		content = rest
		for n == of && len(parameters) > 0 {
			n, file, rest, err := next(parameters)
			if err != nil {
				return m, err
			}
			if parameters = rest; n == 1 {
				a, err := parseNPY(file)
				if err != nil {
					return m, err
				}
				m.Arrays = append(m.Arrays, a)
			}
		}
	}
	return m, nil
}

// next reads the first field of b: its number, its content if that has a length, and the rest.
func next(b []byte) (n protowire.Number, content, rest []byte, err error) {
	n, t, k := protowire.ConsumeTag(b)
	if k < 0 {
		return 0, nil, nil, fmt.Errorf("%w: %w", errMessage, protowire.ParseError(k))
	}
	b = b[k:]
	if t == protowire.BytesType {
		content, k = protowire.ConsumeBytes(b)
	} else {
		k = protowire.ConsumeFieldValue(n, t, b)
	}
	if k < 0 {
		return 0, nil, nil, fmt.Errorf("%w: %w", errMessage, protowire.ParseError(k))
	}
	return n, content, b[k:], nil
}

// maxMessage bounds a message, in bytes.
const maxMessage = 1 << 30

// write writes a message of a call.
func write(w io.Writer, m *Message, server bool) error {
	b := m.append(make([]byte, 5), server)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	_, err := w.Write(b)
	return err
}

// read reads a message of a call.
func read(r io.Reader, server bool) (Message, error) {
	var prefix [5]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return Message{}, err
	}
	n := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0] != 0 || n > maxMessage {
		return Message{}, fmt.Errorf("%w: compressed, or of %d bytes", errMessage, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return Message{}, err
	}
	return parse(b, server)
}
