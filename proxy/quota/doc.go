// Package quota divides a proxy's processors and memory between its peers, so that no peer's connections, however many
// or costly, starve the connections of another.
//
//   - Processors: a connection works on each frame under a grant, and peers take turns ([Quotas.Schedule]). A peer that
//     is alone waits for none.
//   - Decoding: bytes that decode to many more are taken from an allowance of the peer ([Quota.Pace]).
//   - Parsers: their time and memory are metered, and the stream of a parser that takes more than its share travels
//     verbatim ([Quotas.Parsers]). A parser that panics, or answers as none may, ends in the same way.
package quota
