package tc

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// applied puts a plan in force until the test ends.
func applied(t *testing.T, p Plan, err error) *Applied {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Apply()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Undo(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func support(t *testing.T) Support {
	t.Helper()
	s, err := Supported()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mix and draw are those of shape.c: a test that knows them knows which packets are lost.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func draw(seed, purpose, number uint64) uint64 {
	return mix(mix(seed^mix(purpose))+(number+1)*0x9E3779B97F4A7C15) >> 1
}

// Which packets are lost follows from the seed; it repeats, another seed loses others, and the number is as asked.
func TestProgramLosesBySeed(t *testing.T) {
	w := newBench(t)
	has := support(t)
	const packets, loss, seed = 2000, 0.03, 42

	for _, seed := range []uint64{seed, seed + 1} {
		var want []int
		for i := range packets {
			if draw(seed, 1, uint64(i)) < share(loss) {
				want = append(want, i)
			}
		}
		p, err := BPFPlan(Link{Loss: loss, Seed: seed}, w.ab, has)
		for range 2 {
			a := applied(t, p, err)
			got := w.losses(t, packets, 20_000)
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: lost packets %v, want %v", seed, got, want)
			}
			if least, most := binomial99(packets, loss); len(got) < least || len(got) > most {
				t.Errorf("seed %d: lost %d of %d, want %d to %d", seed, len(got), packets, least, most)
			}
			c, err := a.Plan().Counters()
			if err != nil {
				t.Fatal(err)
			}
			if want := (Counters{Packets: packets, Bytes: packets * 200, Lost: uint64(len(want))}); c != want {
				t.Errorf("counters %+v, want %+v", c, want)
			}
			if err := a.Undo(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lost := w.losses(t, 200, 20_000); len(lost) > 0 {
		t.Errorf("after Undo %d packets are lost", len(lost))
	}
}

// A packet that is lost is lost for the sender too: TCP has to notice by itself and still delivers all.
func TestLossIsBehindTheSender(t *testing.T) {
	w := newBench(t)
	applied(t, must(BPFPlan(Link{Loss: 0.05, Seed: 1}, w.ab, support(t))), nil)
	before := retransmitted(t, w.a)
	transfer(t, w, 4<<20)
	if n := retransmitted(t, w.a) - before; n < 50 {
		t.Errorf("%d segments sent again for a loss of 5 %% of some 2900: it did not reach TCP", n)
	}
}

func must(p Plan, err error) Plan {
	if err != nil {
		panic(err)
	}
	return p
}

// retransmitted returns how many TCP segments a namespace has sent more than once.
func retransmitted(t *testing.T, namespace string) int {
	t.Helper()
	words := strings.Fields(run(t, "ip netns exec "+namespace+" grep ^Tcp: /proc/net/snmp"))
	n, err := strconv.Atoi(words[len(words)/2+slices.Index(words, "RetransSegs")])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// transfer sends n bytes from a to b by TCP and checks that they arrive.
func transfer(t *testing.T, w *bench, n int) {
	t.Helper()
	var listener net.Listener
	if err := inNamespace(w.b, func() (err error) {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err = config.Listen(t.Context(), "tcp4", "198.18.2.2:7001")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sent, came := make([]byte, n), make(chan []byte, 1)
	rand.NewChaCha8([32]byte{}).Read(sent)
	go func() {
		defer close(came)
		if c, err := listener.Accept(); err == nil {
			defer c.Close()
			all, _ := io.ReadAll(c)
			came <- all
		}
	}()
	if err := inNamespace(w.a, func() error {
		c, err := net.DialTimeout("tcp4", "198.18.2.2:7001", 10*time.Second)
		if err != nil {
			return err
		}
		_, err = c.Write(sent)
		return errors.Join(err, c.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if got := <-came; !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came, or others", len(got), n)
	}
}
