package pslitesim

import (
	"context"
	"fmt"
)

// Reconnect closes the connections to and from other nodes, one after another, and returns when they stand again under
// the same identities. This node dials, and waits for the others to dial, which they do when they notice. Nothing may
// be under way between them, for ps-lite repairs no loss. When ctx is done before all stands the node is of no more
// use.
func (n *Node) Reconnect(ctx context.Context, ids ...int32) error {
	for _, id := range ids {
		if n.awaits(id) {
			return fmt.Errorf("pslitesim: reconnect with %s while its answer is due", name(id))
		}
		n.mu.Lock()
		s, in := n.senders[id], n.inbound[id]
		n.mu.Unlock()
		if in != nil {
			in.conn.Close()
			<-in.gone
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
		if err := n.awaitInbound(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// awaitInbound waits until there is a connection from a node.
func (n *Node) awaitInbound(ctx context.Context, id int32) error {
	for {
		n.mu.Lock()
		in, admitted := n.inbound[id], n.admitted
		n.mu.Unlock()
		if in != nil {
			return nil
		}
		select {
		case <-admitted:
		case <-n.Done():
			return n.Err()
		case <-ctx.Done():
			return fmt.Errorf("pslitesim: wait for %s to connect again: %w", name(id), context.Cause(ctx))
		}
	}
}
