package flowersim

import "bytes"

// run is the number of the run that the messages below belong to.
const run = 77

// metadata are the Metadata of a message, in the list of messages of a request or a response.
func metadata() []byte { return Nested(Number(nil, 1, run), 1, 2) }

// node names a node in its requests.
func node(id uint64) []byte { return Nested(Number(nil, 1, id), 1) }

// Pulled returns the response to PullMessages that announces a message in objects.
func Pulled(m Object) []byte { return Field(metadata(), 3, m.Tree()) }

// Pushed returns the request PushMessages by which a node announces one.
func Pushed(id uint64, m Object) []byte {
	return Field(append(node(id), metadata()...), 3, m.Tree())
}

// PullObject returns the request for an object.
func PullObject(id uint64, object string) []byte {
	return Field(Number(node(id), 2, run), 3, []byte(object))
}

// ObjectPulled returns the response to it.
func ObjectPulled(o Object) []byte { return Field(Number(Number(nil, 1, 1), 2, 1), 3, o.Content) }

// PushObject returns the request by which a node sends an object.
func PushObject(id uint64, o Object) []byte {
	request := Field(bytes.Clone(PullObject(id, o.ID)), 4, o.Content)
	return Field(request, 5, []byte("session"))
}

// ObjectPushed returns the response to it.
func ObjectPushed() []byte { return Number(nil, 1, 1) }
