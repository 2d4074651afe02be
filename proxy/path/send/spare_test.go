package send

import (
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/proxy/app"
	"github.com/gradproxy/gradproxy/proxy/path"
	"github.com/gradproxy/gradproxy/proxy/path/pathtest"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/proxy/tensors"
	"github.com/gradproxy/gradproxy/tensor"
)

// nowhere is a stream that takes all bytes and keeps none.
type nowhere struct{ pathtest.Sink }

func (*nowhere) Write(p []byte) (int, error)     { return len(p), nil }
func (*nowhere) WriteMore(p []byte) (int, error) { return len(p), nil }

// Small blocks that leave at once are sent in memory that is there already.
func TestSmallBlocksAllocateNothing(t *testing.T) {
	const size, blocks = 1 << 20, 256
	s := newTestSender(t, pathtest.Toy{}, policy.Rule{Codec: "lossless"})
	_, b := pathtest.TCPPair(t)
	s.open(t, &path.Conn{Env: s.env, App: app.Plain(b), Stream: new(nowhere), Log: pathtest.Log(t)})
	piece := pathtest.ToyPiece(1, size, make([]byte, size))
	record, _ := s.env.Tensors.Of(tensors.Origin{}, policy.Flow{}, tensor.Tensor{Key: 2, DType: tensor.Float32, Size: size})
	all := testing.AllocsPerRun(20, func() {
		record.Saw("lossless", 1<<40, 1<<39, time.Nanosecond) // so quickly are blocks coded that no other core is asked, whatever the machine's load
		if err := s.takes(piece); err != nil {
			t.Fatal(err)
		}
	})
	limit := blocks / 4.0
	if require.Race { // sync.Pool drops some of its values then
		limit = blocks
	}
	if all > limit {
		t.Errorf("%v allocations for %d blocks", all, blocks)
	}
	pathtest.Whole(t, s.env)
}

// A group is kept for the next one only if it is of one block to which nothing is done, and has nothing of it then.
func TestSpareGroups(t *testing.T) {
	one := func() *group {
		return &group{blocks: []*block{{text: "lossless", data: make([]byte, 4)}}, runs: []run{{n: 4}}, size: 4, total: 4}
	}
	two, around, long := one(), one(), one()
	two.blocks = append(two.blocks, &block{})
	around.blocks[0].around = &rowBlock{}
	long.runs = make([]run, 9)
	for _, g := range []*group{two, around, long} {
		var s spare
		if s.keep(g); s.group() == g || s.block() == g.blocks[0] {
			t.Errorf("a group of %d blocks and %d runs is kept", len(g.blocks), len(g.runs))
		}
	}
	var s spare
	g := one()
	b := g.blocks[0]
	s.keep(g)
	next := s.empty()
	if cap(next.runs) == 0 || cap(next.blocks) == 0 || len(next.runs) != 0 || len(next.blocks) != 0 || next.blocks[:1][0] != nil {
		t.Errorf("the next group has %v and %v", next.runs, next.blocks)
	}
	if got := s.block(); got != b || got.text != "" || got.data != nil {
		t.Errorf("a block of before: %+v", got)
	}
	if got := s.group(); got != g || got.size != 0 || got.runs != nil {
		t.Errorf("a group of before: %+v", got)
	}
	if s.block() == b || s.group() == g || s.empty().runs != nil {
		t.Error("memory is given twice")
	}
}
