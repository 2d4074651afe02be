package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v2"
)

// Print writes a Snapshot as one line of JSON each interval, the first after one interval, until ctx ends, which is no
// error, or the proxy does not answer. count bounds the lines; 0: no bound.
func Print(ctx context.Context, w io.Writer, s *Sampler, interval time.Duration, count int) error {
	if _, err := s.Next(ctx); err != nil {
		return unlessOver(ctx, err)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	t := time.NewTicker(interval)
	defer t.Stop()
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		x, err := s.Next(ctx)
		if err == nil {
			err = e.Encode(x)
		}
		if err != nil {
			return unlessOver(ctx, err)
		}
	}
	return nil
}

func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Show keeps Snapshots on the terminal until the user quits or ctx ends. It returns an error if the first answer does
// not come; later it goes on asking.
func Show(ctx context.Context, s *Sampler, interval time.Duration) error {
	first, err := s.Next(ctx)
	if err != nil {
		return unlessOver(ctx, err)
	}
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("this terminal cannot be drawn on: %w: use --json, or gradproxy status", err)
	}
	defer screen.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan sampled)
	go sample(ctx, s, interval, news)
	events := make(chan tcell.Event)
	go screen.ChannelEvents(events, ctx.Done())
	d := display{screen: screen, latest: first, wish: &s.wish}
	for {
		d.draw()
		select {
		case <-ctx.Done():
			return nil
		case x := <-news:
			d.take(x)
		case e, open := <-events:
			if !open || d.heed(e) {
				return nil
			}
		}
	}
}

// A sampled is the answer of a proxy, or the error in its place.
type sampled struct {
	snapshot *Snapshot
	err      error
}

func sample(ctx context.Context, s *Sampler, interval time.Duration, news chan<- sampled) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		x, err := s.Next(ctx)
		select {
		case <-ctx.Done():
			return
		case news <- sampled{x, err}:
		}
	}
}

// A display is a terminal with a Snapshot on it.
type display struct {
	screen tcell.Screen
	latest *Snapshot
	view   view
	wish   *wish // of the next Snapshots
}

// take shows the next answer, unless the user has stopped the clock.
func (d *display) take(x sampled) {
	if d.view.fault = x.err; x.err == nil {
		d.view.fault = x.snapshot.fault
	}
	switch {
	case x.err == nil && !d.view.paused:
		d.latest = x.snapshot
	case x.err == nil:
		d.latest.past, d.latest.chosen = x.snapshot.past, x.snapshot.chosen
	}
}

const (
	sideways = 20  // columns by which an arrow moves the view
	widest   = 400 // columns that it moves at most
	furthest = 999 // lines that it scrolls at most, but for the overview
)

// heed acts on a key or a change of the terminal's size, and reports whether the user quits.
func (d *display) heed(e tcell.Event) (quits bool) {
	switch e := e.(type) {
	case *tcell.EventResize:
		d.screen.Sync()
	case *tcell.EventKey:
		last := max(len(d.latest.Tensors)-1, 0)
		if d.view.page != overview || d.view.tensor != 0 {
			last = furthest
		}
		switch key := e.Key(); {
		case key == tcell.KeyCtrlC, key == tcell.KeyEscape && d.view.tensor == 0, e.Rune() == 'q':
			return true
		case key == tcell.KeyEscape:
			d.open(overview, 0)
		case key == tcell.KeyEnter && d.view.page == overview && d.view.tensor == 0 && len(d.latest.Tensors) > 0:
			d.view.back = d.view.offset
			d.open(overview, first(d.latest, d.view).ID)
		case key == tcell.KeyTab:
			d.open((d.view.page+1)%pages, 0)
		case key == tcell.KeyBacktab:
			d.open((d.view.page+pages-1)%pages, 0)
		case key == tcell.KeyRight:
			d.view.left = min(d.view.left+sideways, widest)
		case key == tcell.KeyLeft:
			d.view.left = max(d.view.left-sideways, 0)
		case e.Rune() == 's':
			d.view.order = (d.view.order + 1) % orders
		case e.Rune() == 'p':
			d.view.paused = !d.view.paused
		case key == tcell.KeyDown, e.Rune() == 'j':
			d.view.offset = min(d.view.offset+1, last)
		case key == tcell.KeyUp, e.Rune() == 'k':
			d.view.offset = max(d.view.offset-1, 0)
		case key == tcell.KeyPgDn:
			d.view.offset = min(d.view.offset+10, last)
		case key == tcell.KeyPgUp:
			d.view.offset = max(d.view.offset-10, 0)
		}
	}
	return false
}

// open shows another view, from its beginning, or a tensor in place of the overview, and back.
func (d *display) open(p page, tensor uint64) {
	v := &d.view
	v.left, v.offset = 0, 0
	if v.tensor != 0 && tensor == 0 && p == v.page {
		v.offset = v.back
	}
	v.page, v.tensor = p, tensor
	d.wish.past.Store(p == past)
	d.wish.tensor.Store(tensor)
}

var styles = map[style]tcell.Style{plain: tcell.StyleDefault, heading: tcell.StyleDefault.Bold(true), bad: tcell.StyleDefault.Bold(true).Foreground(tcell.ColorRed)}

// draw writes the lines that fit, cut at the edge.
func (d *display) draw() {
	width, height := d.screen.Size()
	d.screen.Clear()
	lines := text(d.latest, d.view, height)
	for y, l := range lines {
		if y == len(lines)-1 {
			y = height - 1
		}
		x := 0
		for _, r := range printable(l.text) {
			if x >= width {
				break
			}
			d.screen.SetContent(x, y, r, nil, styles[l.style])
			x++
		}
	}
	d.screen.Show()
}

// printable replaces characters that a terminal obeys or does not show: names from the network could hold them.
func printable(s string) []rune {
	all := []rune(s)
	for i, r := range all {
		if !unicode.IsPrint(r) {
			all[i] = '?'
		}
	}
	return all
}
