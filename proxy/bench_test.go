package proxy

import (
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/proxy/internal/rank/ranktest"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
)

// BenchmarkPath sends 64 MiB a time through a pair of proxies, which either make blocks of it or pass it on.
func BenchmarkPath(b *testing.B) {
	for _, c := range []struct {
		name      string
		protocols []parser.Protocol
	}{{"blocks", []parser.Protocol{pathtest.Toy{}}}, {"opaque", nil}} {
		b.Run(c.name, func(b *testing.B) {
			ranktest.Unwatched(b)
			p := newPair(b, c.protocols)
			client, server := p.connect(b)
			value := make([]byte, 1<<20)
			rand.NewChaCha8([32]byte{1}).Read(value[:1<<19])
			message := pathtest.ToyPiece(1, len(value), value)
			const times = 64
			got := make([]byte, 1<<18)
			b.SetBytes(times * int64(len(message)))
			for b.Loop() {
				go func() {
					for range times {
						client.Write(message)
					}
				}()
				for n := 0; n < times*len(message); {
					k, err := server.Read(got)
					if err != nil {
						b.Fatal(err)
					}
					n += k
				}
			}
		})
	}
}
