package flower

// An object is the content of an object that is under way.
type object struct {
	size  int // bytes of the object
	head  []byte
	id    objectID
	place place
	known bool // the place
	body  body
}

// A body is how the bytes of an object are read.
type body uint8

const (
	ofHead  body = iota // its beginning
	ofOther             // nobody looks at it
	ofFirst             // the first part of an array, with the .npy header
	ofRest              // another part, elements only
)

// chunkHead begins the objects that hold arrays; the length of the body and a zero byte follow. They have no children,
// so there are two spaces.
const chunkHead = "ArrayChunk  "

// maxChunkHead bounds the bytes before the body.
const maxChunkHead = len(chunkHead) + 20
