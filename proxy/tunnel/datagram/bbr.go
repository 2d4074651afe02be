package datagram

import (
	"math"
	"math/rand/v2"
	"time"
)

// Constants of BBRv3: draft-ietf-ccwg-bbr-02, section 2. The names are the draft's.
const (
	startupPacingGain = 2.77
	drainPacingGain   = 0.5
	probeDownGain     = 0.90
	probeUpGain       = 1.25
	defaultCwndGain   = 2.0
	probeUpCwndGain   = 2.25
	probeRTTCwndGain  = 0.5

	pacingMargin    = 0.01 // below the estimated rate, so that no queue is kept
	lossThresh      = 0.02 // of the bytes of a round trip: more is congestion
	fewLosses       = 3    // packets
	startupLosses   = 6    // losses in a round trip of Startup
	beta            = 0.7
	headroom        = 0.15 // of inflightHi that is left to others while cruising
	minPipePackets  = 4
	minRTTFilterLen = 10 * time.Second
	probeRTTEvery   = 5 * time.Second
	probeRTTFor     = 200 * time.Millisecond

	// A round trip that is longer than the smallest one by less than a part of it in nearMin shows that the path is
	// empty as well as a smaller one would: section 4.3.4 of the draft looks for a smaller one nevertheless, which
	// costs a flow that is alone 2 to 3 % of its rate. A flow that began behind the queue of another one must still
	// look, so round trips that are only near put it off for probeRTTOften at most.
	nearMin       = 64
	probeRTTOften = 30 * time.Second

	// rttFloor replaces a shorter round trip where the window is computed: acknowledgements wait that long for a busy
	// host, and on a path so short a queue of that length costs nothing. But for that no more bytes are under way than
	// sockets have room for, should the other host not let its process run.
	rttFloor    = 5 * time.Millisecond
	shortWindow = 2 << 20

	maxQuantum   = 64 << 10
	extraWindow  = 10 // rounds
	initialCwnd  = 32 // packets; RFC 9002 has 10, but a session's carriers are few and long
	unlimited    = math.MaxInt / 4
	renoRounds   = 63
	probeWaitMin = 2 * time.Second

	// probeWaitAfterRTT bounds the wait for the first probe of the rate after ProbeRTT, which may come at once. The
	// draft has 2 to 3 s there too. But all flows behind a bottleneck are in ProbeRTT at the same time, so they would
	// then probe within a second of each other, fill the queue and lose together, and none would find the headroom
	// that the others leave it: a second flow on 200 Mbit/s and 80 ms had 0.32 of the link after half a minute, and
	// the first one 0.61.
	probeWaitAfterRTT = 3 * time.Second
)

type bbrState uint8

const (
	startup bbrState = iota
	drain
	probeDown
	probeCruise
	probeRefill
	probeUp
	probeRTT
)

type ackPhase uint8

const (
	acksInit ackPhase = iota
	acksRefilling
	acksProbeStarting
	acksProbeFeedback
	acksProbeStopping
)

// A bbr decides how fast packets leave and how many bytes may be under way: BBRv3, draft-ietf-ccwg-bbr-02. It has no
// state for the recovery of single losses: like any sender under BBR it goes on at the rate that the path delivers.
type bbr struct {
	state      bbrState
	pacingGain float64
	cwndGain   float64
	pacing     float64 // bytes per second
	cwnd       int     // bytes
	packet     int     // bytes of a full packet

	// The model of the path: section 4.5.
	maxBW      float64    // bytes per second, of the last two cycles
	cycles     [2]float64 // the largest rates of this cycle of ProbeBW and of the one before
	bwLo       float64    // short-term bound after losses
	inflightLo int
	inflightHi int // long-term bound: more has lost too much
	minRTT     time.Duration
	minRTTAt   time.Duration
	probeMin   time.Duration // smallest round trip since ProbeRTT
	probeMinAt time.Duration

	// Rounds: section 4.5.1.
	round          uint64
	roundStart     bool
	nextRound      uint64 // delivered at which the round ends
	roundsSinceUp  int    // rounds since bandwidth was last probed
	lossRoundEnd   uint64
	lossRoundStart bool
	lossBefore     stamp // delivered and lost when the loss round began
	lossEvents     int   // declared lost in this round of Startup
	bwLatest       float64
	inflightLatest uint64

	fullBW        float64
	fullBWCount   int
	fullBWNow     bool
	fullBWReached bool

	// ProbeBW: section 4.3.3.
	cycleAt     time.Duration
	probeWait   time.Duration
	ackPhase    ackPhase
	probing     bool // samples of now tell of the probe
	upCount     int  // bytes to be acknowledged for one more packet of inflightHi
	upAcked     int
	upRounds    int
	cwndLimited bool // in the round so far

	probeRTTEnd  time.Duration // 0: not yet at the small window
	probeRTTDone bool
	probedRTTAt  time.Duration // when ProbeRTT last ended
	priorCwnd    int

	// Aggregation of acknowledgements: section 4.5.9.
	extraAcked [extraWindow]int
	extraAt    time.Duration
	extraSum   int

	random *rand.Rand
}

func newBBR(packet int, random *rand.Rand) *bbr {
	b := &bbr{packet: packet, cwnd: initialCwnd * packet, bwLo: math.Inf(1), inflightLo: unlimited, inflightHi: unlimited,
		minRTT: math.MaxInt64, probeMin: math.MaxInt64, upCount: unlimited, random: random}
	b.enterStartup()
	b.pacing = startupPacingGain * float64(b.cwnd) / initialRTT.Seconds()
	return b
}

func (b *bbr) enterStartup() {
	b.state, b.pacingGain, b.cwndGain = startup, startupPacingGain, defaultCwndGain
}

// bw is the rate that the path is thought to carry.
func (b *bbr) bw() float64 { return min(b.maxBW, b.bwLo) }

// quantum is how many bytes may leave at once: section 4.6.3.
func (b *bbr) quantum() int {
	return max(2*b.packet, min(int(b.pacing*0.001), maxQuantum))
}

// bdp returns gain times the bytes that the path holds.
func (b *bbr) bdp(bw, gain float64) int {
	if b.minRTT == math.MaxInt64 {
		return initialCwnd * b.packet
	}
	n := gain * bw * b.minRTT.Seconds()
	return int(min(max(n, min(gain*bw*rttFloor.Seconds(), shortWindow)), unlimited))
}

// inflight returns the bytes under way with which a rate of bw times gain is kept, with room for acknowledgements that
// come together.
func (b *bbr) inflight(bw, gain float64) int { return b.quantized(b.bdp(bw, gain)) }

func (b *bbr) quantized(n int) int {
	n = max(n, 3*b.quantum(), minPipePackets*b.packet)
	if b.state == probeUp {
		n += 2 * b.packet
	}
	return n
}

func (b *bbr) withHeadroom() int {
	if b.inflightHi >= unlimited {
		return unlimited
	}
	return max(b.inflightHi-max(b.packet, int(headroom*float64(b.inflightHi))), minPipePackets*b.packet)
}

func (b *bbr) probesBW() bool { return b.state >= probeDown && b.state <= probeUp }

// acked takes the sample of an acknowledgement. inflight is the number of bytes under way after it; limited: the window
// held packets back.
func (b *bbr) acked(now time.Duration, s *sample, d *deliveryRate, inflight int, limited bool) {
	b.cwndLimited = b.cwndLimited || limited
	b.updateRound(s, d)
	b.updateSignals(s, d)
	b.updateExtraAcked(now, s)
	b.checkFullBW(s)
	b.checkStartup(now, s)
	b.checkDrain(now, d, inflight)
	b.cycle(now, s, d, inflight)
	b.updateMinRTT(now, s)
	b.checkProbeRTT(now, s, d, inflight)
	b.lossRoundAdvance(s)
	b.setPacing()
	b.setCwnd(s, d)
	if b.roundStart {
		b.cwndLimited = limited
	}
}

// updateRound is UpdateRound and UpdateLatestDeliverySignals.
func (b *bbr) updateRound(s *sample, d *deliveryRate) {
	b.roundStart, b.lossRoundStart = false, false
	if !s.some {
		return
	}
	if s.prior >= b.nextRound {
		b.startRound(d)
		b.roundsSinceUp++
		b.roundStart = true
	}
	b.bwLatest = max(b.bwLatest, s.rate)
	b.inflightLatest = max(b.inflightLatest, s.delivered)
	if s.prior >= b.lossRoundEnd {
		b.lossRoundEnd = d.delivered
		b.lossRoundStart = true
	}
}

func (b *bbr) startRound(d *deliveryRate) { b.nextRound = d.delivered; b.round++ }

// updateSignals is UpdateCongestionSignals.
func (b *bbr) updateSignals(s *sample, d *deliveryRate) {
	if s.rate > 0 && (s.rate >= b.maxBW || !s.appLimited) {
		b.cycles[0] = max(b.cycles[0], s.rate)
		b.maxBW = max(b.cycles[0], b.cycles[1])
	}
	if !b.lossRoundStart {
		return
	}
	// AdaptLowerBoundsFromCongestion. The draft does so after any loss. Then losses at random, which each round has,
	// narrow the bounds by their share again and again until the next probe: at 1 % of loss, 200 Mbit/s and 80 ms a
	// quarter of the rate was lost. So, as for the long-term bound, a share of losses up to lossThresh is no
	// congestion.
	lost, delivered := d.lost-b.lossBefore.lost, d.delivered-b.lossBefore.delivered
	b.lossBefore = stamp{lost: d.lost, delivered: d.delivered}
	if float64(lost) <= b.bearable(int(lost+delivered)) || b.state == startup || b.state == probeRefill || b.state == probeUp {
		return
	}
	if math.IsInf(b.bwLo, 1) {
		b.bwLo = b.maxBW
	}
	if b.inflightLo >= unlimited {
		b.inflightLo = b.cwnd
	}
	b.bwLo = max(b.bwLatest, beta*b.bwLo)
	b.inflightLo = max(int(b.inflightLatest), int(beta*float64(b.inflightLo)))
}

// lossRoundAdvance is AdvanceLatestDeliverySignals.
func (b *bbr) lossRoundAdvance(s *sample) {
	if b.lossRoundStart {
		b.bwLatest, b.inflightLatest = s.rate, s.delivered
	}
}

func (b *bbr) updateExtraAcked(now time.Duration, s *sample) {
	expected := int(b.bw() * (now - b.extraAt).Seconds())
	if b.extraSum <= expected {
		b.extraSum, b.extraAt, expected = 0, now, 0
	}
	b.extraSum += s.acked
	i := b.round % extraWindow
	if b.roundStart {
		b.extraAcked[i] = 0
	}
	b.extraAcked[i] = max(b.extraAcked[i], min(b.extraSum-expected, b.cwnd))
}

// checkFullBW is CheckFullBWReached: the rate has not grown by a quarter in three rounds.
func (b *bbr) checkFullBW(s *sample) {
	switch {
	case b.fullBWNow || s.appLimited || !b.roundStart:
	case s.rate >= b.fullBW*1.25:
		b.resetFullBW(s.rate)
	default:
		b.fullBWCount++
		b.fullBWNow = b.fullBWCount >= 3
		b.fullBWReached = b.fullBWReached || b.fullBWNow
	}
}

func (b *bbr) resetFullBW(rate float64) { b.fullBW, b.fullBWCount, b.fullBWNow = rate, 0, false }

// checkStartup leaves Startup when the path is full, or loses too much.
func (b *bbr) checkStartup(now time.Duration, s *sample) {
	if b.state != startup {
		return
	}
	if b.lossRoundStart {
		if !b.fullBWReached && b.lossEvents >= startupLosses && b.tooHigh(s) {
			b.fullBWReached = true
			b.inflightHi = max(b.bdp(b.maxBW, 1), int(b.inflightLatest))
		}
		b.lossEvents = 0
	}
	if b.fullBWReached {
		b.state, b.pacingGain, b.cwndGain = drain, drainPacingGain, defaultCwndGain
	}
}

func (b *bbr) checkDrain(now time.Duration, d *deliveryRate, inflight int) {
	if b.state == drain && inflight <= b.inflight(b.bw(), 1) {
		b.enterDown(now, d)
	}
}

// tooHigh is IsInflightTooHigh.
func (b *bbr) tooHigh(s *sample) bool { return float64(s.lost) > b.bearable(s.inflight) }

// bearable returns how many of so many bytes may be lost before that is congestion. The draft says lossThresh of them.
// Losses at random scatter: at half that share one round in a hundred has more, and it takes seconds to recover the
// rate. So two standard deviations of as many packets are added, and fewLosses packets are always borne.
func (b *bbr) bearable(bytes int) float64 {
	packets := lossThresh * float64(bytes) / float64(b.packet)
	return max(packets+2*math.Sqrt(packets), fewLosses) * float64(b.packet)
}

// lost takes a packet that was declared lost. p is its stamp.
func (b *bbr) lost(now time.Duration, p *stamp, size int, d *deliveryRate) {
	if b.state == startup {
		b.lossEvents++
	}
	if !b.probing {
		return
	}
	s := sample{inflight: p.inflight, lost: d.lost - p.lost, appLimited: p.appLimited}
	if !b.tooHigh(&s) {
		return
	}
	// InflightHiFromLostPacket: the bytes under way at which the share of lost ones passed the threshold.
	before, lostBefore := float64(s.inflight-size), float64(s.lost)-float64(size)
	s.inflight = int(before + max(0, (b.bearable(s.inflight-size)-lostBefore)/(1-lossThresh)))
	b.tooMuch(now, &s, d)
}

// tooMuch is HandleInflightTooHigh.
func (b *bbr) tooMuch(now time.Duration, s *sample, d *deliveryRate) {
	b.probing = false
	if !s.appLimited {
		b.inflightHi = max(s.inflight, int(beta*float64(min(b.inflight(b.bw(), 1), b.cwnd))))
	}
	if b.state == probeUp {
		b.enterDown(now, d)
	}
}

// cycle is UpdateProbeBWCyclePhase.
func (b *bbr) cycle(now time.Duration, s *sample, d *deliveryRate, inflight int) {
	if !b.fullBWReached {
		return
	}
	b.adaptUpper(now, s, d)
	switch b.state {
	case probeDown:
		if b.timeToProbe(now) {
			b.enterRefill(d)
		} else if inflight <= b.withHeadroom() && inflight <= b.inflight(b.maxBW, 1) {
			b.state, b.pacingGain, b.cwndGain = probeCruise, 1, defaultCwndGain
		}
	case probeCruise:
		if b.timeToProbe(now) {
			b.enterRefill(d)
		}
	case probeRefill:
		if b.roundStart {
			b.probing = true
			b.enterUp(now, s, d)
		}
	case probeUp:
		if b.cwndLimited && b.cwnd >= b.inflightHi {
			b.resetFullBW(s.rate)
		} else if b.fullBWNow {
			b.enterDown(now, d)
		}
	}
}

// timeToProbe is CheckTimeToProbeBW: after 2 to 3 s, or as many rounds as Reno would take to double its window.
func (b *bbr) timeToProbe(now time.Duration) bool {
	reno := min(b.inflight(b.maxBW, 1), b.cwnd) / b.packet
	return now-b.cycleAt > b.probeWait || b.roundsSinceUp >= min(reno, renoRounds)
}

// adaptUpper is AdaptLongTermModel.
func (b *bbr) adaptUpper(now time.Duration, s *sample, d *deliveryRate) {
	if b.ackPhase == acksProbeStarting && b.roundStart {
		b.ackPhase = acksProbeFeedback
	}
	if b.ackPhase == acksProbeStopping && b.roundStart {
		b.probing, b.ackPhase = false, acksInit
		if b.probesBW() && !s.appLimited {
			b.cycles[1], b.cycles[0] = b.cycles[0], 0
		}
	}
	switch {
	case !s.some:
	case b.tooHigh(s):
		if b.probing {
			b.tooMuch(now, s, d)
		}
	case b.inflightHi >= unlimited:
	default:
		b.inflightHi = max(b.inflightHi, s.inflight)
		if b.state == probeUp {
			b.raise(s)
		}
	}
}

// raise is ProbeInflightHiUpward.
func (b *bbr) raise(s *sample) {
	if !b.cwndLimited || b.cwnd < b.inflightHi {
		return
	}
	b.upAcked += s.acked
	if b.upAcked >= b.upCount {
		n := b.upAcked / b.upCount
		b.upAcked -= n * b.upCount
		b.inflightHi += n * b.packet
	}
	if b.roundStart {
		b.raiseSlope()
	}
}

func (b *bbr) raiseSlope() {
	b.upRounds = min(b.upRounds+1, 30)
	b.upCount = max(b.cwnd/(1<<(b.upRounds-1)), b.packet)
}

func (b *bbr) enterDown(now time.Duration, d *deliveryRate) {
	b.bwLatest, b.inflightLatest = 0, 0
	b.upCount = unlimited
	b.roundsSinceUp = b.random.IntN(2)
	b.probeWait = probeWaitMin + time.Duration(b.random.Int64N(int64(time.Second)))
	b.cycleAt, b.ackPhase = now, acksProbeStopping
	b.startRound(d)
	b.state, b.pacingGain, b.cwndGain = probeDown, probeDownGain, defaultCwndGain
}

func (b *bbr) enterRefill(d *deliveryRate) {
	b.bwLo, b.inflightLo = math.Inf(1), unlimited
	b.upRounds, b.upAcked = 0, 0
	b.ackPhase = acksRefilling
	b.startRound(d)
	b.state, b.pacingGain, b.cwndGain = probeRefill, 1, defaultCwndGain
}

func (b *bbr) enterUp(now time.Duration, s *sample, d *deliveryRate) {
	b.ackPhase = acksProbeStarting
	b.startRound(d)
	b.resetFullBW(s.rate)
	b.cycleAt = now
	b.state, b.pacingGain, b.cwndGain = probeUp, probeUpGain, probeUpCwndGain
	b.raiseSlope()
}

// updateMinRTT keeps the smallest round trip of 10 s, and of 5 s for the decision to look for a smaller one: section
// 4.5.7.
func (b *bbr) updateMinRTT(now time.Duration, s *sample) {
	switch {
	case s.rtt <= 0:
	case s.rtt < b.probeMin:
		b.probeMin, b.probeMinAt = s.rtt, now
	case s.rtt-b.probeMin < b.probeMin/nearMin && now-b.probedRTTAt < probeRTTOften:
		b.probeMinAt = now
	}
	if b.probeMin < b.minRTT || now-b.minRTTAt > minRTTFilterLen {
		if b.probeMin != math.MaxInt64 {
			b.minRTT, b.minRTTAt = b.probeMin, b.probeMinAt
		}
	}
}

// checkProbeRTT empties the path for a moment every 5 s, unless a round trip showed it empty: section 4.3.4.
func (b *bbr) checkProbeRTT(now time.Duration, s *sample, d *deliveryRate, inflight int) {
	if b.state != probeRTT {
		if now-b.probeMinAt > probeRTTEvery && b.probeMin != math.MaxInt64 {
			b.priorCwnd = b.cwnd
			b.state, b.pacingGain, b.cwndGain = probeRTT, 1, probeRTTCwndGain
			b.probeRTTEnd, b.ackPhase = 0, acksProbeStopping
			b.probeMin = math.MaxInt64
			b.startRound(d)
		}
		return
	}
	switch {
	case b.probeRTTEnd == 0 && inflight <= b.probeRTTCwnd():
		b.probeRTTEnd, b.probeRTTDone = now+probeRTTFor, false
		b.startRound(d)
	case b.probeRTTEnd != 0:
		b.probeRTTDone = b.probeRTTDone || b.roundStart
		if b.probeRTTDone && now > b.probeRTTEnd {
			b.probeMinAt, b.probedRTTAt = now, now
			b.cwnd = max(b.cwnd, b.priorCwnd)
			b.bwLo, b.inflightLo = math.Inf(1), unlimited
			if b.fullBWReached {
				b.enterDown(now, d)
				b.state, b.pacingGain = probeCruise, 1
				b.probeWait = time.Duration(b.random.Int64N(int64(probeWaitAfterRTT)))
			} else {
				b.enterStartup()
			}
		}
	}
}

func (b *bbr) probeRTTCwnd() int {
	return max(b.bdp(b.bw(), probeRTTCwndGain), minPipePackets*b.packet)
}

func (b *bbr) setPacing() {
	rate := b.pacingGain * b.bw() * (1 - pacingMargin)
	if b.maxBW > 0 && (b.fullBWReached || rate > b.pacing) {
		b.pacing = rate
	}
}

func (b *bbr) setCwnd(s *sample, d *deliveryRate) {
	extra := 0
	for _, n := range b.extraAcked {
		extra = max(extra, n)
	}
	maximum := b.quantized(b.bdp(b.bw(), b.cwndGain) + extra)
	if b.fullBWReached {
		b.cwnd = min(b.cwnd+s.acked, maximum)
	} else if b.cwnd < maximum || d.delivered < uint64(initialCwnd*b.packet) {
		b.cwnd += s.acked
	}
	if b.state == probeRTT {
		b.cwnd = min(b.cwnd, b.probeRTTCwnd())
	}
	limit := unlimited
	switch {
	case b.state == probeCruise || b.state == probeRTT:
		limit = b.withHeadroom()
	case b.probesBW():
		limit = b.inflightHi
	}
	b.cwnd = max(min(b.cwnd, limit, b.inflightLo), minPipePackets*b.packet)
}

// timedOut narrows the window when probes have stayed without an answer: the bytes under way no longer prove anything.
func (b *bbr) timedOut() { b.cwnd = minPipePackets * b.packet }
