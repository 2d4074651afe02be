package npy

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/tensor"
)

// A Container is a file that holds arrays.
type Container uint8

const (
	NoContainer Container = iota // another file, or one that is not known yet
	Zip                          // a ZIP file, as numpy.savez writes it, with one .npy file that is not compressed
	Safetensors
)

// A Member is one array of a file.
type Member struct {
	Name  string // less .npy
	DType tensor.DType
	Off   int    // of the elements in the file, in bytes
	Size  int    // of all elements, in bytes
	Shape string // for people
}

// An Item finds the arrays in one file. It reads no more than the file's beginning:
//
//	Zip          local header (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7): "PK" 3 4, version, flags, method 0,
//	             time, date, CRC-32 of the member, two sizes (all ones: in the extra field 1, 8 bytes each), lengths of name and extra
//	             field, name, extra field; then the .npy file, and at the end the directory, with the CRC-32 again
//	Safetensors  length of a header (8 bytes, little-endian), the header, in JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}, then the elements
//	             (https://github.com/huggingface/safetensors#format)
//
// A reader of a ZIP file compares the CRC-32: where elements are not the ones that the writer wrote, it refuses them.
type Item struct {
	size    int // bytes of the file
	held    []byte
	done    bool // the beginning has come
	kind    Container
	members []Member
}

// MaxItemHeader bounds the beginning of a file that is understood, in bytes.
const MaxItemHeader = 64 << 10

// Begin begins a file of size bytes.
func (i *Item) Begin(size int) { *i = Item{size: size, held: i.held[:0], members: i.members[:0]} }

// Feed takes the file's next bytes, in order.
func (i *Item) Feed(b []byte) {
	for len(b) > 0 && !i.done {
		need := i.need()
		if need > i.size || need > MaxItemHeader {
			i.end()
			return
		}
		n := min(len(b), need-len(i.held))
		i.held, b = append(i.held, b[:n]...), b[n:]
		if len(i.held) >= i.need() { // the last bytes may show that no more are needed
			i.decide()
			i.end()
		}
	}
}

// end notes that the item's beginning is known, and drops a copy of it that is large.
func (i *Item) end() {
	if i.done = true; cap(i.held) > 2*MaxHeader {
		i.held = nil
	}
}

// Done reports whether the beginning has come: bytes that follow need not be fed.
func (i *Item) Done() bool { return i.done }

// Kind returns the kind of the file, as far as its beginning has come.
func (i *Item) Kind() Container { return i.kind }

// Members returns the arrays of the file, in the order of their elements, once its beginning has come. They are valid
// until Begin.
func (i *Item) Members() []Member { return i.members }

// Held returns how many bytes the Item holds.
func (i *Item) Held() int { return cap(i.held) + cap(i.members)*128 }

// localHeader is the length of a ZIP member's header without its name and extra field.
const localHeader = 30

var localMagic = []byte("PK\x03\x04")

// need returns how many bytes must be held to know more than the bytes that are; where these are all of the beginning,
// it is their number.
func (i *Item) need() int {
	h := i.held
	if len(h) < 8 {
		return 8
	}
	if !bytes.Equal(h[:4], localMagic) {
		return int(min(binary.LittleEndian.Uint64(h), 2*MaxItemHeader)) + 8
	}
	if len(h) < localHeader {
		return localHeader
	}
	at := localHeader + int(binary.LittleEndian.Uint16(h[26:])) + int(binary.LittleEndian.Uint16(h[28:]))
	if len(h) < at {
		return at
	}
	if n, _ := headerLen(h[at:]); n > 0 {
		return at + n
	}
	return len(h) // it is no .npy file
}

// decide reads the beginning.
func (i *Item) decide() {
	if bytes.HasPrefix(i.held, localMagic) {
		i.zip()
		return
	}
	i.safetensors()
}

// zip reads the beginning of a ZIP file.
func (i *Item) zip() {
	h := i.held
	name, extra := int(binary.LittleEndian.Uint16(h[26:])), int(binary.LittleEndian.Uint16(h[28:]))
	at := localHeader + name + extra
	header, ok := Parse(h[at:])
	size, known := zipSize(h[18:26], h[localHeader+name:at])
	stored := binary.LittleEndian.Uint16(h[6:])&^utf8Flag == 0 && binary.LittleEndian.Uint16(h[8:]) == 0
	if i.kind = Zip; !ok || !known || !stored || size != header.Len+header.Data || size > i.size-at {
		return
	}
	i.members = append(i.members, Member{
		Name:  strings.TrimSuffix(string(h[localHeader:localHeader+name]), ".npy"),
		DType: header.DType, Off: at + header.Len, Size: header.Data, Shape: header.Dims(),
	})
}

// utf8Flag says that a name is in UTF-8; every other flag changes how the member is read.
const utf8Flag = 1 << 11

// zipSize returns the size of a member that is not compressed, of its sizes in the header and its extra field.
func zipSize(sizes, extra []byte) (int, bool) {
	packed, whole := uint64(binary.LittleEndian.Uint32(sizes)), uint64(binary.LittleEndian.Uint32(sizes[4:]))
	if packed == 1<<32-1 && whole == packed {
		for len(extra) >= 4 {
			id, n := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
			if extra = extra[4:]; n > len(extra) {
				return 0, false
			}
			if id == 1 && n >= 16 {
				whole, packed = binary.LittleEndian.Uint64(extra), binary.LittleEndian.Uint64(extra[8:])
			}
			extra = extra[n:]
		}
	}
	return int(whole), packed == whole && whole <= maxData
}

// safeTypes are the element types of safetensors. Booleans are bytes.
var safeTypes = map[string]tensor.DType{
	"F64": tensor.Float64, "F32": tensor.Float32, "F16": tensor.Float16, "BF16": tensor.BFloat16,
	"I64": tensor.Int64, "I32": tensor.Int32, "I16": tensor.Int16, "I8": tensor.Int8,
	"U64": tensor.Uint64, "U32": tensor.Uint32, "U16": tensor.Uint16, "U8": tensor.Uint8, "BOOL": tensor.Uint8,
}

// dims writes a shape for people.
func dims(shape []int) string {
	var all []string
	for _, d := range shape[:min(len(shape), 8)] {
		all = append(all, strconv.Itoa(d))
	}
	if len(all) == 0 {
		return "scalar"
	}
	return Short(strings.Join(all, "×"), maxDims)
}

// safetensors reads the beginning of a safetensors file.
func (i *Item) safetensors() {
	var arrays map[string]json.RawMessage
	if len(i.held) < 10 || i.held[8] != '{' || json.Unmarshal(i.held[8:], &arrays) != nil {
		return
	}
	for name, text := range arrays {
		var a struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		d, known := tensor.NoDType, false
		if name != "__metadata__" && json.Unmarshal(text, &a) == nil {
			d, known = safeTypes[a.DType]
		}
		from, to := a.Offsets[0], a.Offsets[1]
		if !known || from < 0 || to < from || to > i.size-len(i.held) {
			continue
		}
		n := d.Size()
		for _, dim := range a.Shape {
			if dim < 0 || dim > 0 && n > maxData/dim {
				n = -1
				break
			}
			n *= dim
		}
		if n == to-from && n > 0 {
			i.members = append(i.members, Member{Name: name, DType: d, Off: len(i.held) + from, Size: n, Shape: dims(a.Shape)})
		}
	}
	slices.SortFunc(i.members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Name, b.Name)) })
	for k := 1; k < len(i.members); k++ {
		if last := i.members[k-1]; i.members[k].Off < last.Off+last.Size {
			i.members = i.members[:0] // they overlap
			return
		}
	}
	if len(i.members) > 0 {
		i.kind = Safetensors
	}
}
