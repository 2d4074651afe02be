package tunnel

import (
	"bytes"
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
	dtlsWithID     = 25 // tls12_cid: RFC 9146, section 4
	dtlsRouting    = 27 // return_routability_check: RFC 9853, section 4
	messageHeader  = 12
	epochAt        = 3
	recordLengthAt = 11
)

const (
	suiteNonce = 12 // bytes, of both suites
	suiteTag   = 16
	roomForID  = 8 // bytes: an id that is longer needs memory for each record

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

// A recordForm is the form of the records of one direction. With a connection id they are of type dtlsWithID, have the
// id in front of their length, and have their own type behind their content: RFC 9146, section 4.
type recordForm struct {
	id []byte // nil: they carry none
}

// header returns the length of a record's header.
func (f *recordForm) header() int { return dtlsHeader + len(f.id) }

// inner returns how many bytes are encrypted with a record's content.
func (f *recordForm) inner() int { return min(len(f.id), 1) }

// overhead returns how many bytes a record adds to its content.
func (f *recordForm) overhead() int { return f.header() + f.inner() + suiteTag }

// length returns the length of the record that b begins with, which is longer than b if b is cut off. A record of
// another form has the length that its header has where records without an id have it.
func (f *recordForm) length(b []byte) int {
	at := recordLengthAt
	if b[0] == dtlsWithID {
		at += len(f.id)
	}
	if len(b) < at+2 {
		return len(b) + 1
	}
	return at + 2 + int(binary.BigEndian.Uint16(b[at:]))
}

// has reports whether a record, whose header is whole, is of this form.
func (f *recordForm) has(b []byte) bool {
	if len(f.id) == 0 {
		return b[0] != dtlsWithID
	}
	return b[0] == dtlsWithID && bytes.Equal(b[recordLengthAt:][:len(f.id)], f.id)
}

// secrets makes the nonce and the additional data of a record with that header, whose content, with the inner bytes,
// has length bytes in clear: RFC 7905, section 2; RFC 6347, section 4.1.2.1; with an id RFC 9146, section 5.3.
func (f *recordForm) secrets(scratch *recordScratch, iv *[suiteNonce]byte, header []byte, length int) (nonce, data []byte) {
	scratch.nonce = *iv
	number := header[epochAt:recordLengthAt] // epoch and sequence number
	for i, b := range number {
		scratch.nonce[suiteNonce-8+i] ^= b
	}
	data = scratch.data[:0]
	if len(f.id) == 0 {
		data = append(append(data, number...), header[:epochAt]...) // type and version
	} else {
		data = append(data, 255, 255, 255, 255, 255, 255, 255, 255, dtlsWithID, byte(len(f.id)), dtlsWithID)
		data = append(append(append(data, header[1:epochAt]...), number...), f.id...)
	}
	return scratch.nonce[:], binary.BigEndian.AppendUint16(data, uint16(length))
}

// plain returns a record in the form that pion reads, with a type and without its id.
func (f *recordForm) plain(b []byte, kind byte) []byte {
	out := append(make([]byte, 0, len(b)), kind)
	out = append(out, b[1:recordLengthAt]...)
	return append(out, b[recordLengthAt+len(f.id):]...)
}

// whole undoes plain: it returns the record with its id.
func (f *recordForm) whole(b []byte) []byte {
	if len(f.id) == 0 {
		return b
	}
	out := append(make([]byte, 0, len(b)+len(f.id)), dtlsWithID)
	out = append(append(out, b[1:recordLengthAt]...), f.id...)
	return append(out, b[recordLengthAt:]...)
}

// A recordScratch is memory for a nonce and additional data.
type recordScratch struct {
	nonce [suiteNonce]byte
	data  [dtlsHeader + 10 + roomForID]byte
}

// A sealer gives records their numbers and encrypts them. No two have the same number, whoever has made them, because
// numbers are given nowhere else, under one lock, and each record is encrypted once.
type sealer struct {
	recordForm
	mu      innermostLock
	aead    cipher.AEAD
	iv      [suiteNonce]byte
	next    uint64
	scratch recordScratch
}

// record encrypts a record of a type in place: room for its header, and its content. The memory behind it must have
// room for the rest of its overhead.
func (s *sealer) record(kind byte, b []byte) (sealed []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, err = s.numbered(kind, b); err != nil {
		return nil, err
	}
	return s.encrypt(b, &s.scratch), nil
}

// number gives a record its number, and does all of record but the encryption: encrypt must follow, once.
func (s *sealer) number(kind byte, b []byte) (record []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbered(kind, b)
}

// numbered is number. The lock is held.
func (s *sealer) numbered(kind byte, b []byte) (record []byte, err error) {
	if s.next >= maxSealed {
		return nil, errWornKey
	}
	record = s.prepare(kind, b, s.next)
	s.next++
	return record, nil
}

// prepare writes all of a record that is not encrypted yet.
func (s *sealer) prepare(kind byte, b []byte, number uint64) []byte {
	header := s.header()
	b[0] = kind
	if len(s.id) > 0 {
		b[0] = dtlsWithID
		copy(b[recordLengthAt:], s.id)
		b = append(b, kind)
	}
	b[1], b[2] = 254, 253
	binary.BigEndian.PutUint64(b[epochAt:], dataEpoch<<48|number)
	binary.BigEndian.PutUint16(b[header-2:], uint16(len(b)-header+suiteTag))
	return b
}

// encrypt encrypts a record in place. It may be called concurrently, with a scratch each.
func (s *sealer) encrypt(b []byte, scratch *recordScratch) (sealed []byte) {
	header := s.header()
	content := b[header:]
	nonce, data := s.secrets(scratch, &s.iv, b, len(content))
	return b[:header+len(s.aead.Seal(content[:0], nonce, content, data))]
}

// An opener decrypts the records of the other end.
type opener struct {
	recordForm
	mu     innermostLock
	aead   cipher.AEAD
	iv     [suiteNonce]byte
	came   replayWindow  // of records with data
	next   atomic.Uint64 // came.next, for readers without the lock
	forged uint64        // decrypted records that were not authentic

	scratch recordScratch
}

// record decrypts a record in place, and returns its type and its content.
func (o *opener) record(b []byte) (kind byte, content []byte, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open(b)
}

// plausible reports whether a record may be authentic by its fields in clear: form, epoch, length and number. It costs
// next to nothing, so that whoever writes the other end's address into datagrams, and does not see which numbers it
// uses, has few of them decrypted.
func (o *opener) plausible(b []byte) bool {
	word := binary.BigEndian.Uint64(b[epochAt:])
	number, next := word&(1<<48-1), o.next.Load()
	return word>>48 == dataEpoch && o.has(b) && len(b) >= o.overhead() && number < maxSealed && number < next+maxAhead && number+dtlsReplayWindow >= next
}

// worth reports whether a datagram may hold an authentic record, by the fields in clear.
func (o *opener) worth(b []byte) bool {
	for len(b) >= dtlsHeader {
		length := o.length(b)
		if length > len(b) {
			return false
		}
		if o.plausible(b[:length]) {
			return true
		}
		b = b[length:]
	}
	return false
}

// authentic reports whether the other end has sealed a record. It does not change the record.
func (o *opener) authentic(b []byte) bool {
	if !o.plausible(b) {
		return false
	}
	_, _, err := o.record(append([]byte(nil), b...))
	return err == nil
}

// fresh decrypts a record in place, and returns its type and its content, if it comes for the first time: RFC 6347,
// section 4.1.2.6. newest: no record with a larger number has come. ahead: the outcome, if the record was
// decrypted ahead; else nil.
func (o *opener) fresh(b []byte, ahead *decrypted) (kind byte, content []byte, newest bool, err error) {
	if !o.plausible(b) {
		return 0, nil, false, errDTLSRecord
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	number := binary.BigEndian.Uint64(b[epochAt:]) & (1<<48 - 1)
	if o.came.has(number) {
		return 0, nil, false, errReplayed
	}
	if ahead == nil {
		kind, content, err = o.open(b)
	} else {
		kind, content, err = o.judge(ahead)
	}
	if err == nil {
		newest = number >= o.came.next
		o.came.add(number)
		o.next.Store(o.came.next)
	}
	return kind, content, newest, err
}

// open is record. The lock is held.
func (o *opener) open(b []byte) (kind byte, content []byte, err error) {
	if o.forged >= maxForged {
		return 0, nil, errWornKey
	}
	ahead := o.decrypt(b, &o.scratch)
	return o.judge(&ahead)
}

// A decrypted is the outcome of the decryption of a record.
type decrypted struct {
	kind    byte
	content []byte
	err     error
	forged  bool // the record was decrypted, and is not authentic
}

// decrypt decrypts a record in place. It notes nothing: judge must follow. It may be called concurrently, with a
// scratch each.
func (o *opener) decrypt(b []byte, scratch *recordScratch) decrypted {
	if len(b) < o.overhead() || !o.has(b) || binary.BigEndian.Uint16(b[epochAt:]) != dataEpoch {
		return decrypted{err: errDTLSRecord}
	}
	content := b[o.header():]
	nonce, data := o.secrets(scratch, &o.iv, b, len(content)-suiteTag)
	content, err := o.aead.Open(content[:0], nonce, content, data)
	if err != nil {
		return decrypted{err: errDTLSRecord, forged: true}
	}
	if len(o.id) == 0 {
		return decrypted{kind: b[0], content: content}
	}
	content = bytes.TrimRight(content, "\x00") // padding: RFC 9146, section 4
	if len(content) == 0 {
		return decrypted{err: errDTLSRecord}
	}
	last := len(content) - 1
	return decrypted{kind: content[last], content: content[:last]}
}

// judge counts a record that was decrypted, and returns its type and its content. The lock is held.
func (o *opener) judge(d *decrypted) (kind byte, content []byte, err error) {
	if o.forged >= maxForged {
		return 0, nil, errWornKey
	}
	if d.forged {
		o.forged++
	}
	return d.kind, d.content, d.err
}

// refused returns how many records were not authentic.
func (o *opener) refused() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.forged
}

// dtlsSecrets are the id and the keys that a connection's suite shares with the layers around pion.
type dtlsSecrets struct {
	id   []byte // that the dialing side's records carry under the key
	keys atomic.Pointer[dtlsKeys]
}

// dtlsKeys are the keys of a connection. Its only handshake makes them, for epoch 1.
type dtlsKeys struct {
	seal sealer
	open opener
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
