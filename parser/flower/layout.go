package flower

import (
	"maps"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/parser/internal/protoscan"
)

// A step is the meaning of a field.
type step uint8

const (
	enter     step = 1 + iota // a message
	recordSet                 // a RecordSet, or in other releases a short text
	array                     // a .npy file
	initial                   // a message with the parameters that training begins with
	record                    // an ArrayRecord, or ParametersRecord
	element                   // an Array in it
	name                      // of a record
	key                       // of an array in a record
	run                       // number of the run
	node                      // number of the node
	objectOf                  // id of the object that is pulled or pushed
	content                   // of an object
	tree                      // of a message's objects
	branch                    // a record in a tree
	leaf                      // an array in a tree
	chunk                     // of an array in a tree
	chunkID                   // its id
)

// A layout says where the fields of a kind of message stand that anybody looks at.
type layout map[protoscan.Path]step

// The layouts of messages.
var (
	joinFromServer = layout{4: enter, 0x0401: enter, 0x040101: array, 5: enter, 0x0501: enter, 0x050101: array}
	joinFromClient = layout{3: initial, 0x0302: enter, 0x030201: array, 4: enter, 0x0402: enter, 0x040201: array}

	pulledTasks    = join(tasks(2, joinFromServer))
	pushedTasks    = join(tasks(1, joinFromClient), tasks(2, joinFromClient)) // 1 is the node from 1.12 on
	pulledMessages = messages
	pushedMessages = join(messages, layout{1: enter, 0x0101: node})

	pullRequest  = layout{3: objectOf}
	pullResponse = layout{3: content}
	pushRequest  = layout{1: enter, 0x0101: node, 2: run, 3: objectOf, 4: content}
)

// messages is the layout of a list of messages, each with its metadata and a RecordSet, and the trees of its objects.
var messages = join(layout{2: enter, 0x0201: enter, 0x020101: run}, records(0x0202), layout{
	3: tree, 0x0302: enter, 0x030202: branch, 0x03020202: leaf, 0x0302020202: chunk, 0x030202020201: chunkID})

// tasks is the layout of a list of tasks, in field list.
func tasks(list protoscan.Path, old layout) layout {
	l := layout{list: enter, list<<8 | 4: enter}
	for _, field := range []protoscan.Path{0x0408, 0x0409} {
		maps.Copy(l, records(list<<16|field))
		l[list<<16|field] = recordSet
	}
	for _, nested := range []protoscan.Path{101, 102} {
		maps.Copy(l, under(list<<16|4<<8|nested, old))
	}
	return l
}

// records is the layout of a RecordSet, or RecordDict, at p.
func records(p protoscan.Path) layout {
	return under(p, layout{1: enter, 0x0101: name, 0x0102: record, 0x010201: key, 0x010202: element, 0x01020204: array})
}

// under is l in the message at p.
func under(p protoscan.Path, l layout) layout {
	moved := layout{p: enter}
	for sub, s := range l {
		bits := 8
		for sub>>bits > 0 {
			bits += 8
		}
		moved[p<<bits|sub] = s
	}
	return moved
}

// join is the layout that has all fields of ls.
func join(ls ...layout) layout {
	all := layout{}
	for _, l := range ls {
		maps.Copy(all, l)
	}
	return all
}

// A method is one of Flower's calls, by its messages from the client and from the server; nil: nobody looks at them.
type method struct {
	layouts [2]layout
	exact   bool    // no bit of an array may change
	repeats [2]bool // the same arrays may be sent again, or to another client
}

// methods are the methods that matter, by the last part of a gRPC or HTTP path.
var methods = map[string]*method{
	"/flwr.proto.FlowerService/Join": {layouts: [2]layout{parser.Client: joinFromClient, parser.Server: joinFromServer}, repeats: [2]bool{parser.Server: true}},
	"/flwr.proto.Fleet/PullTaskIns":  {layouts: [2]layout{parser.Server: pulledTasks}, repeats: both},
	"/flwr.proto.Fleet/PushTaskRes":  {layouts: [2]layout{parser.Client: pushedTasks}, repeats: both},
	"/flwr.proto.Fleet/PullMessages": {layouts: [2]layout{parser.Server: pulledMessages}, repeats: both},
	"/flwr.proto.Fleet/PushMessages": {layouts: [2]layout{parser.Client: pushedMessages}, repeats: both},
	"/flwr.proto.Fleet/PullObject":   pullObject,
	"/flwr.proto.Fleet/PushObject":   pushObject,
	"/v1/fleet/pull-messages":        {layouts: [2]layout{parser.Server: pulledMessages}, exact: true, repeats: both},
	"/v1/fleet/push-messages":        {layouts: [2]layout{parser.Client: pushedMessages}, exact: true, repeats: both},
	"/v1/fleet/pull-object":          pullObject,
	"/v1/fleet/push-object":          pushObject,
}

// both is the repeats of a call that is made again where its answer does not come: gRPC does so by itself, and Flower
// on top of it.
var both = [2]bool{true, true}

var (
	pullObject = &method{layouts: [2]layout{parser.Client: pullRequest, parser.Server: pullResponse}, exact: true, repeats: both}
	pushObject = &method{layouts: [2]layout{parser.Client: pushRequest}, exact: true, repeats: both}
)
