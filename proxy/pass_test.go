package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"
)

// What is behind no peer is reached from here: bytes and ends come as they are, and a drain waits for it, or resets it.
func TestPass(t *testing.T) {
	p := newPair(t, nil)
	p.near.Apply(Settings{Policy: p.near.policy()})
	client, server := p.connect(t)
	defer client.Close()
	defer server.Close()
	data := random(rand.New(rand.NewPCG(1, 2)), 3<<20)
	go func() {
		client.Write(data)
		client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d arrive, or others: %v", len(got), len(data), err)
	}
	server.Write([]byte("answer"))
	server.CloseWrite()
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Fatalf("%q comes back: %v", got, err)
	}

	client, server = p.connect(t)
	defer client.Close()
	defer server.Close()
	server.Write([]byte("here"))
	io.ReadFull(client, make([]byte, 4))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.near.Drain(ctx); err == nil {
		t.Error("a drain without time leaves nothing to complain about")
	}
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v after a drain, want a reset", err)
	}
}

// A server behind no peer that refuses is told as a reset.
func TestPassRefused(t *testing.T) {
	p := newPair(t, nil)
	p.near.Apply(Settings{Policy: p.near.policy()})
	p.target.Close()
	client, err := net.Dial("tcp", p.entry.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v, want a reset", err)
	}
}
