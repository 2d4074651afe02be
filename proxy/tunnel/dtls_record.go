package tunnel

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"sync/atomic"
)

// The records of a connection after its handshake: RFC 6347, section 4.1. Records with data bypass pion/dtls, which
// allocates, copies and hands over each several times. This side seals them where they leave, and opens them where they
// came.

// Fields of a DTLS record's header and of a handshake message's: RFC 6347, sections 4.1 and 4.2.2.
const (
	dtlsHeader     = 13
	dtlsCipherSpec = 20 // never encrypted
	dtlsAlert      = 21
	dtlsHandshake  = 22
	dtlsData       = 23
	messageHeader  = 12
	epochAt        = 3
	recordLengthAt = 11
)

const (
	suiteNonce    = 12 // bytes, of both suites
	suiteTag      = 16
	suiteOverhead = dtlsHeader + suiteTag // bytes that a record adds to its content

	dtlsDatagramBytes = 16250 // of the largest datagram: four fill a call, and a record of DTLS is not longer

	dataEpoch = 1 // of all records under keys: pion/dtls never renegotiates

	// maxSealed is how many records a sealer seals, and maxForged how many records an opener refuses: RFC 8446, section
	// 5.5, and RFC 9147, section 4.5.3, for AES-GCM. A carrier is replaced long before (rotateRecords, rotateForged),
	// so that only a defect comes here.
	maxSealed = 23_726_566 // 2^24.5
	maxForged = 1 << 36

	dtlsReplayWindow = 4096 // records: on a path that reorders, 64, as RFC 6347 has it, lose many at high rates

	// maxAhead is how many records in a row may be lost: a number further beyond the largest that came is forged. Much
	// fewer leave a sender without an acknowledgement: the window's bytes, and the bytes that are sent again until the
	// carrier is given up.
	maxAhead = 1 << 20
)

var (
	errDTLSRecord = errors.New("record is not authentic")
	errReplayed   = errors.New("record has come before, or is too old to know")
	errEpoch      = errors.New("a record of another epoch than the handshake's")
	errWornKey    = errors.New("the key has sealed, or refused, as many records as it may")
)

// A sealer gives records their numbers and encrypts them. No two have the same number, whoever has made them, because a
// number is taken nowhere else, under the same lock as the nonce is made of it.
type sealer struct {
	mu   innermostLock
	aead cipher.AEAD
	iv   [suiteNonce]byte
	next uint64

	nonce [suiteNonce]byte // scratch
	data  [dtlsHeader]byte
}

// record encrypts a record in place: a header, whose first byte counts, and its content. The memory behind it must have
// room for the tag.
func (s *sealer) record(b []byte) (sealed []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next >= maxSealed {
		return nil, errWornKey
	}
	content := b[dtlsHeader:]
	b[1], b[2] = 254, 253
	binary.BigEndian.PutUint64(b[epochAt:], dataEpoch<<48|s.next)
	s.next++
	recordSecrets(&s.nonce, &s.data, &s.iv, b, len(content))
	binary.BigEndian.PutUint16(b[recordLengthAt:], uint16(len(content)+suiteTag))
	return b[:dtlsHeader+len(s.aead.Seal(content[:0], s.nonce[:], content, s.data[:]))], nil
}

// An opener decrypts the records of the other end.
type opener struct {
	mu     innermostLock
	aead   cipher.AEAD
	iv     [suiteNonce]byte
	came   replayWindow  // of records with data
	next   atomic.Uint64 // came.next, for readers without the lock
	forged uint64        // decrypted records that were not authentic

	nonce [suiteNonce]byte // scratch
	data  [dtlsHeader]byte
}

// record decrypts a record in place, and returns its content.
func (o *opener) record(b []byte) (content []byte, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open(b)
}

// plausible reports whether a record may be authentic by its fields in clear: epoch, length and number. It costs next
// to nothing, so that whoever writes the other end's address into datagrams, and does not see which numbers it uses,
// has few of them decrypted.
func (o *opener) plausible(b []byte) bool {
	word := binary.BigEndian.Uint64(b[epochAt:])
	number, next := word&(1<<48-1), o.next.Load()
	return word>>48 == dataEpoch && len(b) >= dtlsHeader+suiteTag && number < maxSealed && number < next+maxAhead && number+dtlsReplayWindow >= next
}

// authentic reports whether the other end has sealed a record. It does not change the record.
func (o *opener) authentic(b []byte) bool {
	if !o.plausible(b) {
		return false
	}
	_, err := o.record(append([]byte(nil), b...))
	return err == nil
}

// fresh decrypts a record with data in place, and returns its content, if it comes for the first time: RFC 6347,
// section 4.1.2.6.
func (o *opener) fresh(b []byte) (content []byte, err error) {
	if !o.plausible(b) {
		return nil, errDTLSRecord
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	number := binary.BigEndian.Uint64(b[epochAt:]) & (1<<48 - 1)
	if o.came.has(number) {
		return nil, errReplayed
	}
	if content, err = o.open(b); err == nil {
		o.came.add(number)
		o.next.Store(o.came.next)
	}
	return content, err
}

// open is record. The lock is held.
func (o *opener) open(b []byte) (content []byte, err error) {
	if o.forged >= maxForged {
		return nil, errWornKey
	}
	content = b[dtlsHeader:]
	length := len(content) - suiteTag
	if length < 0 || binary.BigEndian.Uint16(b[epochAt:]) != dataEpoch {
		return nil, errDTLSRecord
	}
	recordSecrets(&o.nonce, &o.data, &o.iv, b, length)
	if content, err = o.aead.Open(content[:0], o.nonce[:], content, o.data[:]); err != nil {
		o.forged++
		return nil, errDTLSRecord
	}
	return content, nil
}

// refused returns how many records were not authentic.
func (o *opener) refused() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.forged
}

// recordSecrets makes the nonce and the additional data of a record with that header, whose content has length bytes in
// clear: RFC 7905, section 2, and RFC 6347, section 4.1.2.1.
func recordSecrets(nonce *[suiteNonce]byte, data *[dtlsHeader]byte, iv *[suiteNonce]byte, header []byte, length int) {
	*nonce = *iv
	number := header[epochAt:recordLengthAt] // epoch and sequence number
	for i, b := range number {
		nonce[suiteNonce-8+i] ^= b
	}
	copy(data[:], number)
	copy(data[8:], header[:epochAt]) // type and version
	binary.BigEndian.PutUint16(data[recordLengthAt:], uint16(length))
}

// A replayWindow is which of the newest dtlsReplayWindow numbers have come.
type replayWindow struct {
	next uint64                          // one more than the largest
	bits [dtlsReplayWindow/64 + 1]uint64 // one word more, since the window may begin within a word
}

// has reports whether a number has come, or is so old that it is not known.
func (w *replayWindow) has(number uint64) bool {
	switch {
	case number >= w.next:
		return false
	case w.next-number > dtlsReplayWindow:
		return true
	}
	return w.bits[number/64%uint64(len(w.bits))]>>(number%64)&1 == 1
}

// add notes a number for which has is false.
func (w *replayWindow) add(number uint64) {
	if number >= w.next {
		from := (w.next + 63) / 64 // the first word that no number below next shares
		to := number / 64
		if to-min(from, to) >= uint64(len(w.bits)) {
			from = to - uint64(len(w.bits)) + 1
		}
		for i := from; i <= to; i++ {
			w.bits[i%uint64(len(w.bits))] = 0
		}
		w.next = number + 1
	}
	w.bits[number/64%uint64(len(w.bits))] |= 1 << (number % 64)
}
