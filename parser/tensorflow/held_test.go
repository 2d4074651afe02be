package tensorflow

import (
	"runtime"
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/grpc/grpctest"
	sim "github.com/gradproxy/gradproxy/parser/tensorflow/tensorflowsim"
)

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// However many calls are under way, a connection tells the memory of the functions that they have registered and queued
// so far, and of the requests that wait for their answers.
func TestCallsUnderWayAreHeld(t *testing.T) {
	const calls = 300
	var functions, queued []byte
	for range maxFunctions {
		functions = sim.Sub(functions, 3, sim.Sub(nil, 4, sim.Sub(nil, 1, nil)))
	}
	for range maxQueued {
		queued = sim.Sub(queued, 3, sim.Sub(nil, 2, sim.Number(nil, 8, 1)))
	}
	long := strings.Repeat("x", 4000)
	for name, c := range map[string]struct {
		method string
		bytes  []byte
	}{
		"functions": {"/tensorflow.eager.EagerService/Enqueue", functions},
		"queued":    {"/tensorflow.eager.EagerService/Enqueue", queued},
		"a request": {sim.WorkerService + "RecvBuf", sim.Text(sim.Text(sim.Text(nil, 2, long), 8, long), 9, long)},
	} {
		w := watch(t)
		for range calls {
			id := w.Call(c.method)
			b := grpctest.Prefixed(append(c.bytes[:len(c.bytes):len(c.bytes)], 0x28, 1)) // a field that nobody reads
			if name != "a request" {
				b = b[:len(b)-1]
			}
			w.Data(parser.Client, id, b, name == "a request")
		}
		before := heap()
		w.play()
		takes := heap() - before
		if told := parser.Held(w.parsers[parser.Client]); takes > 2*told || told > 2*takes {
			t.Errorf("%s: %d bytes are told, and %d taken", name, told, takes)
		}
	}
}
