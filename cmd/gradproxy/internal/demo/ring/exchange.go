package ring

// An exchange is the transfers of one collective under way: what Gloo calls an unbound buffer. In each direction at most
// 2 * size are posted and not yet waited for.
type exchange struct {
	group *Group
	slot  slotID

	sent, received     chan error
	sending, receiving int    // posted and not yet waited for
	scratch            []byte // reused from one collective to the next
}

// send posts a message to a peer. b belongs to the exchange until a waitSend that counts it has returned.
func (x *exchange) send(peer int, b []byte) {
	x.sending++
	x.group.pairs[peer].send(x.slot, transfer{b, x.sent})
}

// recv posts room for a message of len(b) bytes from a peer. b belongs to the exchange until a waitRecv that counts it has
// returned.
func (x *exchange) recv(peer int, b []byte) {
	x.receiving++
	x.group.pairs[peer].recv(x.slot, transfer{b, x.received})
}

// waitSend waits for one message to be written. Those to one peer are written in order.
func (x *exchange) waitSend() error {
	x.sending--
	return <-x.sent
}

// waitRecv waits for one message to arrive. Those from one peer arrive in order.
func (x *exchange) waitRecv() error {
	x.receiving--
	return <-x.received
}

// drain waits for all that is posted, after the connections have failed, so that no buffer changes any more.
func (x *exchange) drain() {
	for x.sending > 0 {
		x.waitSend()
	}
	for x.receiving > 0 {
		x.waitRecv()
	}
}

// room returns n bytes of scratch space, valid during the collective.
func (x *exchange) room(n int) []byte {
	if cap(x.scratch) < n {
		x.scratch = make([]byte, n)
	}
	return x.scratch[:n]
}
