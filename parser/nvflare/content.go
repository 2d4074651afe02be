package nvflare

import (
	"encoding/binary"
	"encoding/json"

	"github.com/cespare/xxhash/v2"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/msgscan"
	"github.com/gradproxy/gradproxy/parser/internal/npy"
	"github.com/gradproxy/gradproxy/tensor"
)

// A subject has the facts of a stream that decide how its content is read. The header of the stream's first frame tells
// them.
type subject struct {
	direction
	what    string // channel and topic
	request string
	size    int
}

// The streams that are read, by channel and topic.
const (
	tasks     = "return_only/server_command:get_task"
	updates   = "server_command/submit_update"
	requests  = "download_service__/download_service__download"
	downloads = "return_only/download_service__:download_service__download"
	streaming = "aux_communication/ObjectStreamer.Request"
)

// hasFiles reports whether the stream has files. An answer to a download request does, and so does a request by which
// NVFlare's TensorServerStreamer or TensorClientStreamer sends arrays unasked.
func (x *subject) hasFiles() bool { return x.what == downloads || x.what == streaming }

// announces reports whether the stream announces arrays.
func (x *subject) announces() bool {
	return x.what == tasks && x.side == parser.Server || x.what == updates && x.side == parser.Client
}

// A content reads the sections of a stream.
type content struct {
	subject *subject
	off     int    // of the next byte in the stream
	copied  []byte // the bytes so far of a section's head, an id or a text
	section section
	left    int // bytes of the section still to come
	main    msgscan.Scanner
	item    npy.Item
	itemAt  int  // offset in the stream at which the file begins
	found   bool // the file's arrays are known

	// Facts that the content has told so far.
	items     map[item]arrayName
	class     byte   // of the current object
	ordered   bool   // the DXO's data is an OrderedDict
	entry     []byte // name of the OrderedDict's current entry; empty: it has not come, or is used
	kind      string // of the DXO
	processed bool   // a filter has processed the arrays
	refs      []reference
	more      bool // the content has more references than refs
}

// An item names an array within an announcement. NVFlare counts the arrays of each class from T0 on, and each class has
// a ref_id of its own.
type item struct {
	class byte // announcesNumPy or announcesTorch; 0: the content does not tell
	name  string
}

// A reference is a ref_id, and the class of arrays that it stands for.
type reference struct {
	id    string
	class byte
}

// A section is the kind of a section, or of its next bytes.
type section uint8

const (
	ofHead section = iota
	ofValue
	ofText
	ofID // before a file
	ofFile
	ofOther
)

// Markers of sections.
const (
	markerValue = 100
	markerText  = 101
	markerBytes = 102
)

// Types of the texts that announce arrays.
const (
	announcesNumPy = 3
	announcesTorch = 6
)

// classes has the class of an array by the name of its type.
var classes = map[string]byte{"numpy.ndarray": announcesNumPy, "torch.Tensor": announcesTorch}

// Lengths in bytes, and a number of entries.
const (
	sectionHead = 10      // a section's marker, type and length
	idLen       = 16      // a section's id
	maxText     = 4 << 10 // maximum of a text that is read
	maxRefs     = 4       // maximum of references in a stream
	maxItemName = 16      // maximum of an item's name
)

// feed takes a prefix of b, the next bytes of the stream, and returns its length. known says that with these bytes the
// arrays of c.item, the file that begins at c.itemAt, have become known.
func (c *content) feed(b []byte) (n int, known bool) {
	switch c.section {
	case ofHead:
		n = c.collect(b, sectionHead)
		if len(c.copied) == sectionHead {
			c.open(c.subject.size - c.off - n)
		}
	case ofText, ofID:
		want := min(c.left+len(c.copied), maxText)
		if c.section == ofID {
			want = idLen
		}
		n = c.collect(b[:min(len(b), c.left)], want)
		if c.left -= n; len(c.copied) == want {
			c.text()
		}
	default:
		n, known = c.body(b[:min(len(b), c.left)])
		c.left -= n
	}
	c.off += n
	c.close()
	return n, known
}

// collect copies bytes of b until n bytes are copied, and returns how many of b it took.
func (c *content) collect(b []byte, n int) int {
	m := min(len(b), n-len(c.copied))
	c.copied = append(c.copied, b[:m]...)
	return m
}

// close ends the section if all its bytes have come.
func (c *content) close() {
	if c.left == 0 && c.section != ofHead {
		c.section, c.copied = ofHead, c.copied[:0]
	}
}

// open begins a section whose head has come. rest is the number of bytes of the stream after the head.
func (c *content) open(rest int) {
	x := c.subject
	size := binary.BigEndian.Uint64(c.copied[2:])
	marker, kind := c.copied[0], c.copied[1]
	c.copied = c.copied[:0]
	c.section, c.left = ofOther, int(min(size, uint64(rest)))
	if c.left == 0 {
		c.section = ofHead
	}
	switch {
	case size > uint64(rest): // a length that lies
	case marker == markerValue && size > 0:
		c.section = ofValue
		c.main.Begin(c.left, c)
	case marker == markerText && (kind == announcesNumPy || kind == announcesTorch) && x.announces() && size > idLen:
		c.section, c.class = ofText, kind
	case marker == markerBytes && x.hasFiles() && size > idLen:
		c.section = ofID
	}
}

// text ends the collection of a text or an id.
func (c *content) text() {
	if c.section == ofID {
		c.section, c.found = ofFile, false
		c.itemAt = -1
		c.item.Begin(c.left)
	} else {
		var v struct {
			RefID string `json:"ref_id"`
		}
		if json.Unmarshal(c.copied[idLen:], &v) == nil && v.RefID != "" && len(v.RefID) <= msgscan.MaxText && len(c.refs) < maxRefs {
			c.refs = append(c.refs, reference{v.RefID, c.class})
		} else {
			c.more = true
		}
		c.section = ofOther
	}
	c.copied = c.copied[:0]
}

// body takes bytes of a section's body, at least one, and returns their number. known has the meaning that it has in
// feed.
func (c *content) body(b []byte) (n int, known bool) {
	switch c.section {
	case ofFile:
		known = c.file(b)
	case ofValue:
		if n := c.main.Next(b); n > 0 {
			return n, false
		}
		b = b[:min(len(b), c.main.Streaming())]
		known = c.file(b)
		c.main.Take(len(b))
	}
	return len(b), known
}

// file takes bytes of a file, and reports whether the file's arrays have become known with them.
func (c *content) file(b []byte) (known bool) {
	if c.itemAt < 0 {
		c.itemAt = c.off
	}
	if c.found {
		return false
	}
	c.item.Feed(b)
	c.found = c.item.Done()
	return c.found
}

// spare skips the next n bytes. If c must see some of these it skips nothing and returns false.
func (c *content) spare(n int) bool {
	switch {
	case c.section == ofFile && c.found && n <= c.left:
	case c.section == ofValue && c.found && n <= c.main.Streaming():
		c.main.Take(n)
	default:
		return false
	}
	c.off += n
	c.left -= n
	c.close()
	return true
}

// end puts the facts of the stream, whose bytes have all come, where other streams find them.
func (c *content) end() {
	x := c.subject
	f := x.conn.facts
	if x.what == requests {
		if len(c.refs) == 1 && x.request != "" {
			f.request(fact{x.conn.scope, x.request}, fact{x.conn.scope, c.refs[0].id})
		}
		return
	}
	role := tensor.Exact
	switch {
	case c.processed:
	case c.kind == "WEIGHTS":
		role = tensor.State
	case c.kind == "WEIGHT_DIFF" && x.what == updates && x.side == parser.Client:
		role = tensor.Gradient
	}
	for _, ref := range c.refs {
		f.announce(fact{x.conn.scope, ref.id}, &announcement{from: x.side, role: role, names: c.names(ref.class)})
	}
}

// names returns the names of the arrays of a class in the DXO's data. It leaves out an array that the message has
// elsewhere, such as SCAFFOLD's control variates in the DXO's meta. If several references have the class, or may have
// it (more), it returns nil, since a name could then stand for two arrays.
func (c *content) names(class byte) map[string]arrayName {
	same := 0
	for _, ref := range c.refs {
		if ref.class == class {
			same++
		}
	}
	if same > 1 || c.more {
		return nil
	}
	names, others := map[string]arrayName{}, map[string]bool{}
	for i, n := range c.items {
		switch {
		case i.class != class && i.class != 0:
		case n.elsewhere:
			others[i.name] = true
		case i.class == class || len(c.refs) == 1:
			names[i.name] = n
		}
	}
	for name := range others {
		delete(names, name)
	}
	return names
}

// heldBytes returns about how many bytes c holds.
func (c *content) heldBytes() int {
	return cap(c.copied) + c.main.Held() + c.item.Held() + len(c.items)*(64+32+maxLabel)
}

// Text implements msgscan.Handler.
func (c *content) Text(b []byte) {
	x, m := c.subject, &c.main
	switch {
	case x.what == requests:
		if m.Path("ref_id") && len(c.refs) < maxRefs {
			c.refs = append(c.refs, reference{id: string(b)})
		}
	case !x.announces():
	case m.Path("__fobs_data__", "DXO", "kind", "__fobs_data__"):
		c.kind = string(b)
	case m.Path("__fobs_data__", "DXO", "data", "__fobs_type__"):
		c.ordered = string(b) == "collections.OrderedDict"
	case m.Path("__fobs_data__", "DXO", "data", "__fobs_data__", "", "__fobs_data__", ""):
		c.entry = append(c.entry[:0], b...)
	default:
		c.object(b)
		c.filtered()
	}
}

// object takes a text of an object. The text may be the class of an array, or the array's item.
func (c *content) object(b []byte) {
	m := &c.main
	switch n := m.Depth(); {
	case n < 2:
	case string(m.Key(n-1)) == "__fobs_type__":
		c.class = classes[string(b)]
	case string(m.Key(n-1)) != "data" || string(m.Key(n-2)) != "__fobs_data__":
	case m.Path("__fobs_data__", "DXO", "data", "*", "__fobs_data__", "data"):
		c.refer(b, m.Key(3))
	case c.ordered && m.Path("__fobs_data__", "DXO", "data", "__fobs_data__", "", "__fobs_data__", "", "__fobs_data__", "data"):
		c.refer(b, c.entry)
		c.entry = c.entry[:0]
	default:
		c.refer(b, nil)
	}
}

// refer notes that the item b is the array of that name in the DXO's data. If name is empty the array is elsewhere in
// the message.
func (c *content) refer(b, name []byte) {
	if c.items == nil {
		c.items = map[item]arrayName{}
	}
	i := item{c.class, string(b)}
	old, ok := c.items[i]
	if len(b) > maxItemName || !ok && len(c.items) >= maxNames {
		return
	}
	n := arrayName{hash: xxhash.Sum64(name), text: npy.Short(string(name), maxLabel)}
	n.statistic, n.elsewhere = old.statistic || isStatistic(name), old.elsewhere || len(name) == 0 // of an array with several names
	c.items[i] = n
}

// filtered notes that a filter has processed the arrays, if the current value of the message says so.
func (c *content) filtered() {
	m := &c.main
	if m.Depth() > 3 && string(m.Key(1)) == "DXO" && string(m.Key(2)) == "meta" && string(m.Key(3)) == "PROCESSED_ALGORITHM" {
		c.processed = true
	}
}

// Number implements msgscan.Handler.
func (c *content) Number(int64) { c.filtered() }

// Bool implements msgscan.Handler.
func (c *content) Bool(bool) { c.filtered() }

// Bin implements msgscan.Handler.
func (c *content) Bin(size int) bool {
	m, what := &c.main, c.subject.what
	if !(what == downloads && m.Path("data", "")) && !(what == streaming && m.Path("__fobs_data__", "safetensors_blob")) {
		return false
	}
	c.item.Begin(size)
	c.itemAt, c.found = -1, false
	return true
}
