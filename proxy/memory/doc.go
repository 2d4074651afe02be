// Package memory bounds the bytes that connections hold. A [Budget] says how many a group of connections may hold in
// one direction, a [Pool] recycles the buffers, and an [Allocator] hands out buffers of the Pool against the Budget.
package memory
