package datagram

// An Order says how a record may move among the others.
type Order uint8

const (
	Free  Order = iota // it may overtake all but a Fence
	Last               // it must not overtake anything; Free ones may overtake it
	Fence              // it must not overtake anything, nor be overtaken
	End                // as Fence; nothing follows
)

// MaxRecord is the length of the longest record, in bytes.
const MaxRecord = 1 << 19
