//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
)

const (
	// focused is the name of the tile that has the focus; "": none has it.
	focused = `(document.activeElement?.classList.contains("tilet") ? document.activeElement.getAttribute("aria-label") : "")`
	opened  = `document.querySelector("#detail h3")?.textContent ?? ""`
	// downPixels counts the pixels of the charts that have the colour of outages.
	downPixels = `(() => {
		const probe = document.createElement("canvas").getContext("2d");
		probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--down").trim();
		probe.fillRect(0, 0, 1, 1);
		const want = probe.getImageData(0, 0, 1, 1).data.join();
		let n = 0;
		for (const c of document.querySelectorAll("#chart-sent canvas, #chart-received canvas")) {
			const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
			for (let i = 0; i < d.length; i += 4) if (d.slice(i, i + 4).join() === want) n++;
		}
		return n;
	})()`
)

// byKeyboard walks over the map and opens a tensor by keys alone. The tensor is explained, with its ratio, relative
// error and residual over time, and the focus comes back to its tile.
func byKeyboard(t *testing.T, b *browser) {
	t.Helper()
	b.do(chromedp.Evaluate(`[...document.querySelectorAll(".tilet:not(.group)")].find((x) => / sent by (3lc|int4)/.test(x.getAttribute("aria-label"))).focus()`, nil))
	from := eval[string](b, focused)
	moved := false
	for _, key := range []string{kb.ArrowRight, kb.ArrowLeft, kb.ArrowDown, kb.ArrowUp} {
		b.do(chromedp.KeyEvent(key))
		now := eval[string](b, focused)
		if now == "" {
			t.Fatalf("after %q no tile has the focus", key)
		}
		moved = moved || now != from
	}
	if !moved {
		t.Error("arrows do not move the focus over the map")
	}
	b.do(chromedp.Evaluate(`[...document.querySelectorAll(".tilet:not(.group)")].find((x) => / sent by (3lc|int4)/.test(x.getAttribute("aria-label"))).focus()`, nil),
		chromedp.KeyEvent(kb.Enter))
	b.await(fmt.Sprintf(`(%s) !== "" && %s.startsWith(%s)`, opened, focused, opened))
	b.await(`document.querySelectorAll("#detail .spark canvas").length === 2`)
	if text := eval[string](b, `document.getElementById("detail").innerText`); !strings.Contains(text, "Ratio over time") || !strings.Contains(text, "Relative error, residual") || !strings.Contains(text, "evidence") {
		t.Errorf("a tensor that loses something is shown as\n%s", text)
	}
	b.do(chromedp.Evaluate(`document.querySelector("#detail .yaml button").focus()`, nil), chromedp.KeyEvent(kb.Escape))
	b.await(`document.querySelector("#detail .hint") !== null`)
	if eval[string](b, focused) == "" {
		t.Error("after Escape the focus is not at the tile that was open")
	}
}

// An outage is told on the page while it lasts, in two tabs at once, and stays in both charts as a band and in their
// table.
func TestPageShowsAnOutage(t *testing.T) {
	require.Chromium(t)
	t.Parallel()
	w := newWAN(t, 2, lan)
	ps := startProxies(t, w, testbed.Config{})
	ctx := deadline(t, 3*time.Minute)
	address, err := ps[0].Forward(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tabs := []*browser{browse(t, address), browse(t, address)}
	var before []int // pixels: the time before the tunnel was up is a band too
	for _, b := range tabs {
		b.do(chromedp.Evaluate(`document.querySelector("input[name=range][value='1']").click()`, nil), chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true })`, nil))
		b.await(`document.querySelectorAll("#peers tr.peer").length === 1 && document.querySelectorAll("#history-table tbody tr").length >= 5`)
		before = append(before, eval[int](b, downPixels))
	}
	mended := make(chan error, 1)
	go func() { mended <- w.Outage(ctx, 15*time.Second) }()
	for _, b := range tabs {
		b.await(`/outage for/.test(document.getElementById("peers").innerText) && document.getElementById("state").textContent === "not ready"`)
	}
	if err := <-mended; err != nil {
		t.Fatal(err)
	}
	for i, b := range tabs {
		b.await(`!/outage for/.test(document.getElementById("peers").innerText) && document.getElementById("state").textContent === "ready"`)
		b.await(`[...document.querySelectorAll("#history-table tbody tr")].filter((r) => /^[1-9]/.test(r.cells[5].textContent)).length >= 5`)
		b.await(fmt.Sprintf("%s > %d", downPixels, before[i]+2000))
		if faults := b.said(); len(faults) > 0 {
			t.Errorf("faults of the page: %q", faults)
		}
	}
}
