package pair

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/codecs/all"
)

// BenchmarkCoding compares the time of proxies that code a job's gradients with the time of the same proxies that pass
// them on. Two processes of the program are started for each codec and each kind of tunnel, in the clear and with TLS,
// and a worker of ps-lite pushes gradients of 4 MiB through them to a server that throws them away. All of it is on
// loopback, and rounds of 1 GiB are interleaved. Metrics are medians over the rounds, "tls-" before the ones of tunnels
// with TLS:
//
//	CODEC-GB/s                bytes (GB: 10⁹) that the near proxy takes in a second, until the server has the last
//	CODEC-near-s/GB           processor seconds of the near proxy for each of these GB
//	CODEC-far-s/GB            the same of the far proxy
//	CODEC-ends-s/GB           the same of worker and server, which are this process
//	CODEC-bits                bits that a value took in the tunnel
//	CODEC-cpu-of-verbatim     near-s/GB, as a share of the time of passing on in the same round
//	CODEC-pair-of-verbatim    the same of near-s/GB and far-s/GB together
//	CODEC-chain-of-verbatim   the same with ends-s/GB too
//	CODEC-rate-of-verbatim    the same of GB/s
//
// Processor time is the kernel's, of user and system, from the processes' clocks (clock_getcpuclockid(3)). The rate is
// that of all four on one machine: far proxy and server, which elsewhere have processors of their own, take theirs here
// too.
//
//	go test ./cmd/gradproxy/internal/pair -run '^$' -bench Coding -benchtime 1x
func BenchmarkCoding(b *testing.B) {
	const turns = 3
	program := buildProgram(b)
	values := drawValues()
	var ways []*coding
	for _, tls := range []bool{false, true} {
		for _, c := range []coding{
			{name: "verbatim", codec: "verbatim", bits: 32},
			{name: "3lc", codec: "3lc(s=1.75)", bits: 3.2}, // if a tenth were sent as it is
			{name: "lossless", codec: "lossless", bits: 30},
			{name: "lossless-fast", codec: "lossless(level=fast)", bits: 30},
		} {
			if tls {
				c.name = "tls-" + c.name
			}
			c.sites = startSites(b, program, c.codec, tls)
			c.worker = newWorker(b, c.sites)
			ways = append(ways, &c)
		}
	}
	for _, c := range ways {
		c.worker.push(b, values, 3*arrays) // the first gradient of each key travels exactly, the second takes memory
		c.before = c.sites.coded(b, c.text(b))
	}
	for b.Loop() {
		for range turns {
			for _, c := range ways {
				c.taken = append(c.taken, c.round(b, values))
			}
		}
	}
	half := len(ways) / 2
	for i, c := range ways {
		c.report(b, ways[i/half*half].taken)
	}
}

const (
	arrays    = 32      // keys: a model of 128 MiB, whose residuals no cache holds
	arraySize = 4 << 20 // bytes
	pushes    = 256     // in a round
)

// A coding is one codec over one kind of tunnel.
type coding struct {
	name, codec string
	bits        float64 // for a value, at most, if it was used
	sites       *sites
	worker      *worker
	before      amount // bytes that the near proxy had sent before the first round
	taken       []taken
}

// taken is the time of 10⁹ bytes in a round, in seconds.
type taken struct{ wall, near, far, ends float64 }

func (c *coding) round(b *testing.B, values [][]byte) taken {
	near, far, ends, begin := c.sites.near.processor(b), c.sites.far.processor(b), self().processor(b), time.Now()
	n := c.worker.push(b, values, pushes)
	gb := float64(n) / 1e9
	return taken{
		wall: time.Since(begin).Seconds() / gb,
		near: (c.sites.near.processor(b) - near).Seconds() / gb,
		far:  (c.sites.far.processor(b) - far).Seconds() / gb,
		ends: (self().processor(b) - ends).Seconds() / gb,
	}
}

// text returns the codec as the proxy names it.
func (c *coding) text(b *testing.B) string {
	if c.codec == "verbatim" {
		return c.codec
	}
	codec, err := all.New(c.codec)
	if err != nil {
		b.Fatal(err)
	}
	return codec.String()
}

// report reports the medians, once it is sure that the codec was used.
func (c *coding) report(b *testing.B, passed []taken) {
	now := c.sites.coded(b, c.text(b))
	raw, wire := now.raw-c.before.raw, now.wire-c.before.wire
	pushed := int64(len(c.taken)) * pushes * arraySize
	if raw < pushed/10*9 {
		b.Fatalf("%s: of %d bytes pushed %d went by %s", c.name, pushed, raw, c.codec)
	}
	bits := 32 * float64(wire) / float64(raw)
	if bits > c.bits {
		b.Fatalf("%s: a value takes %.2f bits, so that %s was not used", c.name, bits, c.codec)
	}
	b.ReportMetric(bits, c.name+"-bits")
	for _, m := range []struct {
		of   func(taken) float64
		unit string
	}{
		{func(t taken) float64 { return 1 / t.wall }, "GB/s"},
		{func(t taken) float64 { return t.near }, "near-s/GB"},
		{func(t taken) float64 { return t.far }, "far-s/GB"},
		{func(t taken) float64 { return t.ends }, "ends-s/GB"},
	} {
		var x []float64
		for _, t := range c.taken {
			x = append(x, m.of(t))
		}
		b.ReportMetric(median(x), c.name+"-"+m.unit)
	}
	if &passed[0] == &c.taken[0] {
		return // the same rounds
	}
	for _, m := range []struct {
		of   func(taken) float64
		unit string
	}{
		{func(t taken) float64 { return t.near }, "cpu"},
		{func(t taken) float64 { return t.near + t.far }, "pair"},
		{func(t taken) float64 { return t.near + t.far + t.ends }, "chain"},
		{func(t taken) float64 { return 1 / t.wall }, "rate"},
	} {
		var x []float64
		for i, t := range c.taken {
			x = append(x, m.of(t)/m.of(passed[i]))
		}
		b.ReportMetric(median(x), c.name+"-"+m.unit+"-of-verbatim")
	}
}

// drawValues draws some arrays of normally distributed float32.
func drawValues() [][]byte {
	const different = 12 // has no divisor in common with the turn of the keys but 4
	r := rand.New(rand.NewPCG(1, 2))
	values := make([][]byte, different)
	for i := range values {
		values[i] = appendNormal(make([]byte, 0, arraySize), r, arraySize/4)
	}
	return values
}
