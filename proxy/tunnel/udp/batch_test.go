package udp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

// alone has datagrams of a connection leave one by one, and returns n of them, numbered.
func alone(c *Conn, n int) (datagrams []byte, each int) {
	c.SetAlone(true)
	each = 1200
	for i := range n {
		d := bytes.Repeat([]byte{byte(i)}, each)
		binary.BigEndian.PutUint32(d, uint32(i))
		datagrams = append(datagrams, d...)
	}
	return datagrams, each
}

// TestBatch: datagrams that wait come in order, by more and more reads in one call, and once they come singly each call
// does few reads again.
func TestBatch(t *testing.T) {
	client, server := connect(t, listen(t))
	const n = MaxBatch // fit into a socket's buffer of any system
	datagrams, each := alone(server, n)
	client.SetReadDeadline(time.Now().Add(time.Minute))
	largest := 0
	for range 5 {
		if err := server.WriteBatch(datagrams, each, 0); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			d, _, _, err := client.Next()
			if err != nil || !bytes.Equal(d, datagrams[i*each:(i+1)*each]) {
				t.Fatalf("datagram %d is of %d bytes, %v, want %d, as it was sent", i, len(d), err, each)
			}
			largest = max(largest, client.batch.filled)
		}
	}
	if largest != maxReads {
		t.Errorf("a call did up to %d reads, want %d: %d datagrams waited", largest, maxReads, n)
	}
	for range 5 { // each call halves the reads
		if _, err := server.Write([]byte("single")); err != nil {
			t.Fatal(err)
		}
		if d, _, _, err := client.Next(); err != nil || string(d) != "single" {
			t.Fatalf("%q, %v, want the single datagram", d, err)
		}
	}
	if reads := len(client.batch.reads); reads != minReads {
		t.Errorf("a call does %d reads although each brought one datagram, want %d", reads, minReads)
	}
}

// TestBatchFails: a call that fails brings nothing of the calls before it.
func TestBatchFails(t *testing.T) {
	client, server := connect(t, listen(t))
	if _, err := server.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	s := client.socket.Load()
	s.SetReadDeadline(time.Now().Add(time.Minute))
	b := newBatch()
	if d, _, _, err := b.take(s); err != nil || string(d) != "first" {
		t.Fatalf("%q, %v", d, err)
	}
	s.SetReadDeadline(time.Unix(1, 0))
	for range 3 {
		if d, _, _, err := b.take(s); err == nil {
			t.Fatalf("%q came after the deadline", d)
		}
	}
	s.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := server.Write([]byte("second")); err != nil {
		t.Fatal(err)
	}
	if d, _, _, err := b.take(s); err != nil || string(d) != "second" {
		t.Fatalf("%q, %v", d, err)
	}
}

// BenchmarkApart moves datagrams that the kernel neither cuts nor joins, by calls that write and read several and by
// calls that write and read one, in turns. It reports the time of the calls, and that of several as a part of that of
// one.
func BenchmarkApart(b *testing.B) {
	client, server := connect(b, listen(b))
	datagrams, each := alone(server, MaxBatch)
	const turn = MaxBatch // fit into a socket's buffer of any system
	out, in := server.socket.Load(), client.socket.Load()
	to := *server.remote.Load()
	reads := newBatch()
	buffer, oob := newBuffer(readBuffer), make([]byte, oobBuffer)

	fail := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var write, read, writeOne, readOne time.Duration
	for b.Loop() {
		in.SetReadDeadline(time.Now().Add(time.Minute))
		write += timed(func() {
			fail(server.WriteBatch(datagrams, each, 0))
		})
		read += timed(func() {
			for range turn {
				_, _, _, err := reads.take(in)
				fail(err)
			}
		})
		writeOne += timed(func() {
			for i := range turn {
				at := i * each
				fail(out.write(datagrams[at:at+each], nil, to))
			}
		})
		readOne += timed(func() {
			for range turn {
				_, _, _, _, err := in.ReadMsgUDPAddrPort(buffer.data, oob)
				fail(err)
			}
		})
	}
	n := float64(b.N * turn)
	b.ReportMetric(float64(write.Nanoseconds())/n, "write-ns/datagram")
	b.ReportMetric(float64(read.Nanoseconds())/n, "read-ns/datagram")
	b.ReportMetric(write.Seconds()/writeOne.Seconds(), "write/one")
	b.ReportMetric(read.Seconds()/readOne.Seconds(), "read/one")
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
