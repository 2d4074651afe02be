package tunnel

// kicks wake the goroutines that keep a peer's carriers, one for each slot: the slot may need a carrier.
type kicks [maxSlots]chan struct{}

func (k *kicks) begin() {
	for i := range k {
		k[i] = make(chan struct{}, 1)
	}
}

func (k *kicks) kick(slot int) {
	select {
	case k[slot] <- struct{}{}:
	default:
	}
}

func (k *kicks) all() {
	for slot := range k {
		k.kick(slot)
	}
}
