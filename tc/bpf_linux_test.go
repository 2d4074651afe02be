package tc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// mix and draw are the functions of shape.c: a test that knows them knows which packets are lost.
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
			got := w.losses(t, packets)
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: lost packets %v, want %v", seed, got, want)
			}
			if minimum, maximum := binomial99(packets, loss); len(got) < minimum || len(got) > maximum {
				t.Errorf("seed %d: lost %d of %d, want %d to %d", seed, len(got), packets, minimum, maximum)
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
	if lost := w.losses(t, 200); len(lost) > 0 {
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

// Packets and bytes are counted as on the wire, no matter how many segments the kernel hands over at once: each segment
// has 52 bytes of headers (20 of IP, 20 of TCP, 12 of timestamps), and the SYN 8 more (RFC 9293, 3.1; RFC 7323, 3.2).
func TestProgramCountsSegments(t *testing.T) {
	has := support(t)
	for name, skip := range map[string]int{"apart": 0, "joined": 1} { // the first rule of a plan is Segments
		t.Run(name, func(t *testing.T) {
			w := newBench(t)
			const size, segment = 4 << 20, 1448
			a := applied(t, must(BPFPlan(Link{}, w.ab, has))[skip:], nil)
			transfer(t, w, size)
			n, err := a.Plan().Counters()
			if err != nil {
				t.Fatal(err)
			}
			if payload := n.Bytes - 52*n.Packets - 8; payload < size || payload > size+segment*uint64(retransmitted(t, w.a)) {
				t.Errorf("counters %+v: %d bytes of payload, want %d", n, payload, size)
			}
			if n.Packets < size/segment {
				t.Errorf("%d packets for %d bytes: want one for each %d", n.Packets, size, segment)
			}
		})
	}
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

// The ECN bits of an IP header (RFC 3168, section 5).
const ect1, ect0, ce = 1, 2, 3

// Marks are by seed as well, and only for packets whose ends speak ECN.
func TestProgramMarksBySeed(t *testing.T) {
	const packets, marks, seed = 1000, 0.2, 9
	for _, sent := range []int{0, ect0, ect1} {
		t.Run(fmt.Sprint("bits ", sent), func(t *testing.T) {
			w := newBench(t)
			a := applied(t, must(BPFPlan(Link{Marks: marks, Seed: seed}, w.ab, support(t))), nil)
			setOption(t, w.from, unix.IP_TOS, sent)
			setOption(t, w.to, unix.IP_RECVTOS, 1)
			send(t, w.from, atB, packets, 100)
			came := receive(t, w.to, 300*time.Millisecond)
			if len(came) != packets {
				t.Fatalf("%d packets of %d came", len(came), packets)
			}
			marked := uint64(0)
			for _, p := range came {
				want := sent
				if sent != 0 && draw(seed, 2, uint64(p.number)) < share(marks) {
					want = ce
					marked++
				}
				if p.tos != want {
					t.Fatalf("packet %d, sent with ECN bits %d, came with %d, want %d", p.number, sent, p.tos, want)
				}
			}
			if n, err := a.Plan().Counters(); err != nil || n.Marked != marked || n.Lost != 0 {
				t.Errorf("counters %+v, %v: want %d marked", n, err, marked)
			}
		})
	}
}

// A program that is given other numbers goes on counting.
func TestChangeOfAProgram(t *testing.T) {
	w := newBench(t)
	has := support(t)
	a := applied(t, must(BPFPlan(Link{}, w.ab, has)), nil)
	for i, loss := range []float64{0, 1, 0} {
		if err := a.Change(must(BPFPlan(Link{Loss: loss}, w.ab, has))); err != nil {
			t.Fatal(err)
		}
		if lost, want := len(w.losses(t, 100)), int(100*loss); lost != want {
			t.Errorf("loss %v: %d of 100 lost, want %d", loss, lost, want)
		}
		if c, err := a.Plan().Counters(); err != nil || c.Packets != uint64(100*(i+1)) {
			t.Errorf("counters %+v, %v: want %d packets", c, err, 100*(i+1))
		}
	}
}

// Both directions of a link meet at each device of the router: one's end is no end of the other's.
func TestDirectionsShareDevices(t *testing.T) {
	w := newBench(t)
	has := support(t)
	there := applied(t, must(BPFPlan(Link{Loss: 1}, w.ab, has)), nil)
	back := applied(t, must(BPFPlan(Link{}, w.ba, has)), nil)
	if has.FQ {
		if err := back.Change(must(BPFPlan(Link{Delay: time.Millisecond}, w.ba, has))); err != nil {
			t.Fatal(err)
		}
	}
	if err := back.Undo(); err != nil {
		t.Fatal(err)
	}
	if lost := len(w.losses(t, 50)); lost != 50 {
		t.Errorf("with the way back undone %d of 50 are lost on the way there, want all", lost)
	}
	if err := there.Undo(); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "tc -n "+w.ab.In.Namespace+" qdisc show"); strings.Contains(out, "clsact") {
		t.Errorf("after both are undone: %s", out)
	}
}
