package sketchedsgd

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gradproxy/gradproxy/codecs"
	"github.com/gradproxy/gradproxy/codecs/countsketch"
)

const (
	kindParams = 1
	paramsLen  = 1 + 8 + 8 + 4 + 1 + 1 + 4 + 8 + 1 + 8
)

// paramsOf reads the parameters with which a golden exchange begins: kind; d, k (8 bytes each); P (4); rows; cells (0 binary32,
// 1 binary16); columns (4); seed (8); pick (0 top P·k, 1 HEAVYMIX); small (8), little-endian. The error wraps
// codecs.ErrCorrupt; NewPlan checks the bounds.
func paramsOf(msg []byte) (Params, error) {
	if len(msg) != paramsLen || kind(msg[0]) != kindParams {
		return Params{}, fmt.Errorf("%w: sketchedsgd: %d bytes are not parameters", codecs.ErrCorrupt, len(msg))
	}
	le := binary.LittleEndian
	d, k, small := le.Uint64(msg[1:]), le.Uint64(msg[9:]), le.Uint64(msg[36:])
	if max(d, k, small) > math.MaxInt32 {
		return Params{}, fmt.Errorf("%w: sketchedsgd: d is %d, k %d, small %d; all are below 2^31", codecs.ErrCorrupt, d, k, small)
	}
	p := le.Uint32(msg[17:])
	columns := le.Uint32(msg[23:])
	if max(p, columns) > math.MaxInt32 {
		return Params{}, fmt.Errorf("%w: sketchedsgd: p is %d, columns %d; both are below 2^31", codecs.ErrCorrupt, p, columns)
	}
	return Params{
		D: int(d), K: int(k), P: int(p), Rows: int(msg[21]), Cells: countsketch.Cells(msg[22]), Columns: int(columns),
		Seed: le.Uint64(msg[27:]), Pick: Pick(msg[35]), Small: int(small),
	}, nil
}
