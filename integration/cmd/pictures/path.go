package main

// path draws a tensor's way from the app at one site to the app at the other, with the packages' names.
func path() []byte {
	p := newPicture(860, 250, "The path of a tensor: app, parser, path/send, tunnel, WAN, tunnel, path/receive, app")
	p.rect(8, 8, 844, 96, "box", "rule")
	p.text(20, 26, "soft small", "start", "site A")
	p.rect(8, 146, 844, 96, "box", "rule")
	p.text(20, 236, "soft small", "start", "site B")

	stage := func(x, y, w float64, name string) {
		p.rect(x, y, w, 26, "box", "s1")
		p.text(x+w/2, y+17, "ink mono", "middle", name)
	}
	room := func(x, y, w float64, name string, stages ...string) {
		p.rect(x, y, w, 58, "box", "soft")
		p.text(x+8, y+15, "ink mono bold", "start", name)
		each := (w - 12 - 8*float64(len(stages)-1)) / float64(len(stages))
		for i, s := range stages {
			stage(x+6+float64(i)*(each+8), y+24, each, s)
		}
	}
	box := func(x, y, w float64, class, name string) {
		p.rect(x, y, w, 34, "box", class)
		p.text(x+w/2, y+21, "ink mono bold", "middle", name)
	}
	// Site A: to the right.
	box(20, 44, 60, "s3", "app")
	p.arrow(80, 61, 100, 61, "ink")
	box(100, 44, 78, "soft", "parser")
	p.arrow(178, 61, 198, 61, "ink")
	room(198, 32, 500, "path/send", "read", "classify", "cut", "choose", "encode", "emit")
	p.arrow(698, 61, 718, 61, "ink")
	box(718, 44, 120, "soft", "tunnel")
	// The WAN: down.
	p.line(774, 78, 774, 180, "s2", 3)
	p.line(782, 78, 782, 180, "s2", 3)
	p.text(766, 129, "s2 bold", "end", "WAN: one secured, resumable tunnel")
	p.text(20, 129, "soft small", "start", "both directions have this path at once: each proxy sends and receives")
	// Site B: to the left.
	box(718, 180, 120, "soft", "tunnel")
	p.arrow(718, 197, 698, 197, "ink")
	room(398, 168, 300, "path/receive", "deliver", "decode", "read")
	p.arrow(398, 197, 80, 197, "ink")
	p.text(239, 190, "soft small", "middle", "the same framing")
	box(20, 180, 60, "s3", "app")
	return p.bytes()
}
