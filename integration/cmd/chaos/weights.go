//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// weights returns a message with the weights of a version. They differ a little from those of the version before; every
// tenth version is of another model.
func weights(version int) []byte {
	n := elements
	if version%10 == 9 {
		n -= version
	}
	w := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(w[4*i:], math.Float32bits(float32(math.Sin(float64(i)))*(1+float32(version+i%7)/1000)))
	}
	return framed(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), w))
}

// framed puts gRPC's prefix before a message.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// serveWeights answers a request, whose message has the version in field 1, with the weights of that version.
func serveWeights(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil || len(b) < 7 {
		return
	}
	version, _ := protowire.ConsumeVarint(b[6:])
	w.Header().Set("Content-Type", "application/grpc")
	w.Write(weights(int(version)))
}

// pull asks for all versions, one after the other. After some of them (the constant each) it resets its connection and
// opens another one.
func (x *tensors) pull() {
	for version, begun := 0, time.Now(); version < steps && time.Since(begun) < patience; {
		connected := time.Now()
		var conn net.Conn
		t := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			if c, err = dialFrom(ctx, x.entries[ofWeights]); err == nil {
				conn = c
			}
			return c, err
		}}
		t.Protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: t, Timeout: time.Minute}
		for end := min(version+each, steps); version < end; version++ {
			time.Sleep(pace)
			got, err := ask(client, version)
			if err != nil {
				x.ended(connected, err)
				time.Sleep(50 * time.Millisecond)
				break
			}
			if !bytes.Equal(got, weights(version)) {
				x.s.wrongly("%d bytes of weights of version %d differ", len(got), version)
			}
			x.mu.Lock()
			x.pulls++
			x.mu.Unlock()
		}
		if conn != nil {
			abort(conn)
		}
	}
}

func ask(client *http.Client, version int) ([]byte, error) {
	message := framed(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(version)))
	r, err := http.NewRequest("POST", "http://weights/chaos.Weights/Pull", bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}
