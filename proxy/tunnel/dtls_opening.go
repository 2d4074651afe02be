package tunnel

import (
	"encoding/binary"
	"slices"
	"time"
)

const maxOpened = 512 // records in a batch: as many as fill it, where they fill datagrams that the Internet carries

// An openingBatch opens the records of data of several datagrams that have come, in order. Where they are many, cores
// that are idle decrypt some of them ahead.
//
// Records are judged in order, as if each had been decrypted in its turn. Only a record whose number is beyond all
// numbers before it, in the batch and of those that have come, is decrypted ahead. So when its turn comes it is
// plausible and has not come, whatever the records before it turn out to be: as many records are decrypted as one by
// one, and the same pass. All others wait for their turn.
type openingBatch struct {
	records []openingRecord
	next    uint64 // numbers from here on are beyond all others
	units   [maxUnits]openingUnit
	cut     int
	bytes   int // of the records that are in no unit
	policy  spreadPolicy
	began   time.Time
	spread  *spread // nil: no worker was asked
}

// An openingRecord is a record and, if it was decrypted ahead, the outcome.
type openingRecord struct {
	data    []byte
	ahead   bool // it may be decrypted ahead
	outcome decrypted
}

// An openingUnit is records that one core decrypts.
type openingUnit struct {
	from, to int
	scratch  recordScratch
}

// add takes a record, whose memory must stay as it is until each returns.
func (b *openingBatch) add(o *opener, r []byte) {
	if len(b.records) == 0 {
		b.began = time.Now()
	}
	number := binary.BigEndian.Uint64(r[epochAt:]) & (1<<48 - 1)
	ahead := number >= max(b.next, o.next.Load()) && o.plausible(r)
	if ahead {
		b.next = number + 1
	}
	b.records = append(b.records, openingRecord{data: r, ahead: ahead})
	if b.bytes += len(r); b.bytes >= unitBytes && b.cut < maxUnits-1 {
		b.cutUnit(o)
	}
}

// full reports whether each must follow.
func (b *openingBatch) full() bool { return len(b.records) >= maxOpened }

// cutUnit makes a unit of the records that are in none. Units are decrypted from the moment on in which there are
// enough of them for two cores.
func (b *openingBatch) cutUnit(o *opener) {
	from := 0
	if b.cut > 0 {
		from = b.units[b.cut-1].to
	}
	if from == len(b.records) {
		return
	}
	b.units[b.cut] = openingUnit{from: from, to: len(b.records)}
	b.cut++
	b.bytes = 0
	if b.cut == minSpread {
		if asked := b.policy.begin(b.began); asked != nil {
			b.records = slices.Grow(b.records, maxOpened-len(b.records)) // they stay where workers see them
			all := b.records[:maxOpened]
			b.spread = newSpread(asked, func(unit int) { b.units[unit].decrypt(o, all) })
		}
	}
	if b.spread != nil {
		b.spread.offer(b.cut)
	}
}

// each opens the records. In order it calls pass with the number in the batch, the type and the content of each that
// comes for the first time, and whether it is the newest of all, and done behind every other unit and behind the last.
func (b *openingBatch) each(o *opener, pass func(i int, kind byte, content []byte, newest bool), done func()) {
	if len(b.records) == 0 {
		return
	}
	b.cutUnit(o)
	for unit := range b.cut {
		if b.spread != nil {
			b.spread.finish(unit)
		}
		u := &b.units[unit]
		for i := u.from; i < u.to; i++ {
			r := &b.records[i]
			var outcome *decrypted
			if b.spread != nil && r.ahead {
				outcome = &r.outcome
			}
			if kind, content, newest, err := o.fresh(r.data, outcome); err == nil {
				pass(i, kind, content, newest)
			}
		}
		if unit%2 == 1 || unit == b.cut-1 { // as many as come together, where the kernel joins them
			done()
		}
	}
	if b.spread != nil {
		b.spread.end()
	}
	if b.cut >= minSpread {
		took := time.Since(b.began)
		b.policy.learn(b.began.Add(took), b.cut, took, b.spread != nil && b.spread.slow)
	}
	b.spread = nil
	clear(b.records)
	b.records, b.cut, b.next, b.bytes = b.records[:0], 0, 0, 0
}

// decrypt decrypts the records of a unit, of all records of the batch, that may be decrypted ahead.
func (u *openingUnit) decrypt(o *opener, all []openingRecord) {
	for i := u.from; i < u.to; i++ {
		if r := &all[i]; r.ahead {
			r.outcome = o.decrypt(r.data, &u.scratch)
		}
	}
}
