package pslite

import "github.com/gradproxy/gradproxy/tensor"

// A request says how a message of MXNet or BytePS lays out its keys and vals (kvstore_dist_server.h, RequestType;
// byteps/common/common.h, RequestType).
type request uint8

const (
	dense      request = iota // one key, one array
	rowSparse                 // the array's key, then one for each row
	compressed                // codes going to the server; the whole array coming back
)

// mxnetTypes are the element types by their number (3rdparty/mshadow/mshadow/base.h, TypeFlag).
var mxnetTypes = [...]tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.Uint8, tensor.Int32, tensor.Int8,
	tensor.Int64, tensor.Uint8, tensor.Int16, tensor.Uint16, tensor.Uint32, tensor.Uint64, tensor.BFloat16}

// bytepsTypes is how many of these BytePS numbers alike (byteps/common/common.h, DataType).
const bytepsTypes = 7

// parseHead inverts Cantor's pairing of request and element type, (r+d)(r+d+1)/2 + d. It reports false if either is not
// known.
func parseHead(m *meta) (request, tensor.DType, bool) {
	types := mxnetTypes[:]
	if m.packed {
		types = types[:bytepsTypes]
	}
	w := int32(0) // r + d
	for ; (w+1)*(w+2)/2 <= m.head; w++ {
		if w > int32(compressed)+int32(len(types)) {
			return 0, 0, false
		}
	}
	d := m.head - w*(w+1)/2
	r := w - d
	if m.head < 0 || r > int32(compressed) || int(d) >= len(types) {
		return 0, 0, false
	}
	return request(r), types[d], true
}

// dataTypes are the element types of vals by the type of their frame, where that says it
// (include/ps/internal/message.h, DataType; 0 is char, which is never sent).
var dataTypes = [...]tensor.DType{tensor.NoDType, tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64,
	tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64, tensor.Float32, tensor.Float64, tensor.NoDType}
