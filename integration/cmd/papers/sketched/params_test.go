package sketched

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
	"github.com/gradproxy/gradproxy/codecs/sketchedsgd"
)

const (
	kindParams = 1
	paramsLen  = 1 + 8 + 8 + 4 + 1 + 1 + 4 + 8 + 1 + 8
)

// paramsOf reads the parameters with which a golden exchange begins: kind; d, k (8 bytes each); P (4); rows; cells (0
// binary32, 1 binary16); columns (4); seed (8); pick (0 top P·k, 1 HEAVYMIX); small (8), little-endian. The error wraps
// codecs.ErrCorrupt; NewPlan checks the bounds.
func paramsOf(msg []byte) (p sketchedsgd.Params, small int, err error) {
	if len(msg) != paramsLen || kind(msg[0]) != kindParams {
		return p, 0, fmt.Errorf("%w: sketched: %d bytes are not parameters", codecs.ErrCorrupt, len(msg))
	}
	le := binary.LittleEndian
	d, k, smallest := le.Uint64(msg[1:]), le.Uint64(msg[9:]), le.Uint64(msg[36:])
	if max(d, k, smallest) > math.MaxInt32 {
		return p, 0, fmt.Errorf("%w: sketched: d is %d, k %d, small %d; all are below 2^31", codecs.ErrCorrupt, d, k, smallest)
	}
	times := le.Uint32(msg[17:])
	columns := le.Uint32(msg[23:])
	if max(times, columns) > math.MaxInt32 {
		return p, 0, fmt.Errorf("%w: sketched: p is %d, columns %d; both are below 2^31", codecs.ErrCorrupt, times, columns)
	}
	return sketchedsgd.Params{
		D: int(d), K: int(k), P: int(times), Rows: int(msg[21]), Cells: countsketch.Cells(msg[22]), Columns: int(columns),
		Seed: le.Uint64(msg[27:]), Pick: sketchedsgd.Pick(msg[35]),
	}, int(smallest), nil
}
