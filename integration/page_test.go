//go:build linux

package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gradproxy/gradproxy/integration/promtest"
	"github.com/gradproxy/gradproxy/integration/require"
	"github.com/gradproxy/gradproxy/integration/testbed"
	wansim "github.com/gradproxy/gradproxy/wan-sim"
)

// picturesVariable names a folder for the pictures of the page, as docs/img has them.
const picturesVariable = "GRADPROXY_PAGE_PICTURES"

// agreement is how far the bytes of the page, of top, of the metrics and of the link may be apart.
const agreement = 0.001

// A browser shows the page of one proxy.
type browser struct {
	t      *testing.T
	ctx    context.Context
	faults chan string // errors of scripts, and files that the content policy has refused
}

// browse opens the page in a headless Chromium.
func browse(t *testing.T, address string) *browser {
	t.Helper()
	path := require.Chromium(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1360, 900),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("no-proxy-server", true), chromedp.UserDataDir(t.TempDir()))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, faults: make(chan string, 100)}
	chromedp.ListenTarget(ctx, func(e any) {
		text := ""
		switch e := e.(type) {
		case *cdpruntime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				text = e.Entry.Text + " " + e.Entry.URL
			}
		}
		if text != "" {
			select {
			case b.faults <- text:
			default:
			}
		}
	})
	if err := chromedp.Run(ctx); err != nil { // begins the browser, which lives as long as this context
		t.Fatal(err)
	}
	b.do(log.Enable(), chromedp.Navigate("http://"+address+"/"))
	return b
}

// do runs actions in the browser.
func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("%v; faults of the page: %v", err, b.said())
	}
}

// said returns the faults so far.
func (b *browser) said() (all []string) {
	for {
		select {
		case text := <-b.faults:
			all = append(all, text)
		default:
			return all
		}
	}
}

// eval returns the value of an expression in the page.
func eval[T any](b *browser, expression string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &v))
	return v
}

// await waits until a condition holds in the page.
func (b *browser) await(condition string) {
	b.t.Helper()
	b.do(chromedp.Poll(condition, nil, chromedp.WithPollingInterval(200*time.Millisecond), chromedp.WithPollingTimeout(50*time.Second)))
}

// show shows the page in a window of a size and in a theme.
func (b *browser) show(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(emulation.SetDeviceMetricsOverride(width, height, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.Sleep(500*time.Millisecond))
}

// picture takes a picture of the page, of 256 colours, if somebody wants it.
func (b *browser) picture(name string, width, height int64, dark bool) {
	b.t.Helper()
	b.show(width, height, dark)
	dir := os.Getenv(picturesVariable)
	if dir == "" {
		return
	}
	var shot []byte
	b.do(chromedp.Sleep(1500*time.Millisecond), chromedp.CaptureScreenshot(&shot))
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	small := image.NewPaletted(full.Bounds(), nearest(full))
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// shown returns the counters of the page: of apps' bytes sent and received, and of the link's.
func (b *browser) shown() map[string]float64 {
	b.t.Helper()
	all := map[string]float64{}
	for name, text := range eval[map[string]string](b, `({...document.getElementById("main").dataset})`) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.t.Fatalf("%s is %q: %v", name, text, err)
		}
		all[name] = v
	}
	return all
}

// The page of a proxy whose job runs shows that job: its bytes, its link, its tensors and their reasons, both
// directions. Its bytes are those of the metrics, of top, of Grafana, of wan down and of the link itself. It outlives a
// reload, and its history a restart of the proxy.
func TestPageShowsARunningJob(t *testing.T) {
	require.Chromium(t)
	job := torchJob(t, "torch113", 2, "--steps", "60", "--hidden", "1024,512,256", "--bucket-mb", "1", "--sleep", "0.2")
	w := pageWAN(t)
	c := testbed.Config{Price: 0.09, Budget: "{gb_per_day: 50, then: [int8]}", Shadow: `["int8", "3lc(s=1.75)"]`, State: t.TempDir(), Loss: testbed.Loss{Gradients: "3lc", Aggregates: "int4"}}
	ps := startProxies(t, w, c)
	link, err := w.Sites[0].CountPackets()
	if err != nil {
		t.Fatal(err)
	}
	defer link.Stop()
	ctx := deadline(t, patience)
	address, err := ps[0].Forward(ctx)
	if err != nil {
		t.Fatal(err)
	}
	prometheus := promtest.Start(t, "../deploy/prometheus", address)
	linkBefore, before, wanBefore := linkBytes(link), metricsOf(t, ps[0]), wanBytes(t, w.Carried)

	run := startJob(t, w, job)
	b := browse(t, address)
	for _, rank := range run.Ranks {
		if err := rank.Step(ctx, 25); err != nil {
			t.Fatal(err)
		}
	}
	b.await(`document.querySelectorAll(".tilet:not(.group)").length >= 3 && Number(document.getElementById("app").dataset.value) > 1e6`)
	b.await(`document.querySelectorAll("#peers tr.half").length == 1 && document.querySelectorAll("#peers tr.carrier").length >= 2`)
	b.do(chromedp.Evaluate(`[...document.querySelectorAll(".tilet:not(.group)")].sort((a, b) => b.offsetWidth * b.offsetHeight - a.offsetWidth * a.offsetHeight)[0].click()`, nil))
	b.await(`document.querySelector("#detail .why") !== null`)
	if got := eval[string](b, `document.getElementById("detail").innerText`); !strings.Contains(got, "3lc") && !strings.Contains(got, "int4") || !strings.Contains(got, "policy:") || !strings.Contains(got, "the user's word") && !strings.Contains(got, "called by DDP") {
		t.Errorf("the largest tensor is explained by\n%s", got)
	}
	if got := eval[string](b, `document.querySelector(".tilet").getAttribute("aria-label")`); !strings.Contains(got, "job") || !strings.Contains(got, w.Sites[0].Addr.String()) && !strings.Contains(got, w.Sites[0].Addr6.String()) {
		t.Errorf("a tile is called %q", got)
	}
	if n := eval[int](b, `[...document.querySelectorAll(".tilet")].filter((t) => /bucket \d+ of \d+/.test(t.getAttribute("aria-label"))).length`); n < 3 {
		t.Errorf("%d tiles have the name of a bucket", n)
	}
	if n := eval[int](b, `document.querySelectorAll("canvas").length`); n < 2 {
		t.Errorf("%d charts", n)
	}
	results := run.Wait()
	if err := testbed.Failures(results); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Evaluate(`document.querySelector("input[name=range][value='1']").click()`, nil))
	b.picture("page.png", 1360, 1120, false)
	b.picture("page-dark.png", 1360, 1120, true)
	b.picture("page-phone.png", 390, 1500, false)
	b.do(chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => { d.open = true })`, nil))
	for _, v := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"desktop, light", 1360, 900, false}, {"desktop, dark", 1360, 900, true}, {"phone, light", 390, 844, false}, {"phone, dark", 390, 844, true}} {
		b.show(v.width, v.height, v.dark)
		if wide := eval[bool](b, `document.documentElement.scrollWidth > innerWidth + 1`); wide {
			t.Errorf("%s: the page is wider than the window", v.name)
		}
		b.judge(v.name)
	}
	b.show(1360, 900, false)
	order := b.focusOrder(t)
	for _, name := range []string{"skip", "range", "peer", "job", "theme", "half", "area", "tilet", "shadow-all", "peers"} {
		if !slices.ContainsFunc(order, func(s string) bool { return strings.HasPrefix(s, name) }) {
			t.Errorf("Tab does not reach %s: %q", name, order)
		}
	}
	byKeyboard(t, b)
	shadowAndBudget(t, b, ps[0])
	peersHalf(t, b)

	time.Sleep(3 * time.Second) // the last acknowledgements, and two events
	b.do(chromedp.Evaluate(`document.querySelector("input[name=range][value='10']").click()`, nil))
	page, metrics, carried := b.shown(), metricsOf(t, ps[0]), linkBytes(link)
	top := topOf(t, ctx, ps[0])
	for _, x := range []struct {
		name      string
		page, top float64
	}{
		{"raw", page["raw"], top.Raw}, {"delivered", page["delivered"], top.Delivered}, {"sent", page["sent"], top.Network.Sent}, {"received", page["received"], top.Network.Received},
	} {
		near(t, "the page and the metrics: "+x.name, x.page, metrics[x.name])
		near(t, "top and the metrics: "+x.name, x.top, metrics[x.name])
	}
	for _, name := range []string{"sent", "received"} {
		near(t, "the metrics and the link: "+name, metrics[name]-before[name], carried[name]-linkBefore[name])
	}
	near(t, "Grafana and the metrics: bytes of apps", panel(t, prometheus, "Bytes of apps, in all"), metrics["raw"]+metrics["delivered"])
	near(t, "Grafana and the metrics: bytes of links", panel(t, prometheus, "Bytes of links, in all"), metrics["sent"]+metrics["received"])
	t.Logf("page %v, the link itself %v", page, carried)

	b.do(chromedp.Reload())
	b.await(fmt.Sprintf(`Number(document.getElementById("app").dataset.value) >= %.0f`, 0.99*page["raw"]))
	if faults := b.said(); len(faults) > 0 {
		t.Errorf("faults of the page: %q", faults)
	}
	if err := ps[0].Stop(); err != nil {
		t.Fatal(err)
	}
	again, err := program(t).StartOne(w, 0, c)
	if err != nil {
		t.Fatal(err)
	}
	ps[0] = again
	if err := again.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if address, err = again.Forward(ctx); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate("http://" + address + "/"))
	b.await(fmt.Sprintf(`Number(document.getElementById("app").dataset.value) >= %.0f`, 0.99*page["raw"]))
	m, err := again.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if used := testbed.Sum(m, "gradproxy_budget_used_bytes"); used < page["sent"] || used > 1.01*page["sent"] {
		t.Errorf("after a restart %.0f bytes of the day's budget are used, and the link has carried %.0f", used, page["sent"])
	}

	second := metricsOf(t, again) // of a process that counts anew
	down := wanBytes(t, w.Down)
	for _, name := range []string{"sent", "received"} {
		near(t, "the metrics and wan down: "+name, metrics[name]-before[name]+second[name], down[name]-wanBefore[name])
	}
}

// pageWAN lays a WAN of two sites by gradproxy wan. Its queues lose nothing, since the kernel does not count the
// options by which TCP reports losses.
func pageWAN(t *testing.T) *testbed.WAN {
	t.Helper()
	const topology = `{name: page, sites: [{name: a}, {name: b}], links: [{from: a, to: b, rtt: 10ms, rate: 100Mbit/s, queue: 64MiB}]}`
	file := filepath.Join(t.TempDir(), "page.yaml")
	if err := os.WriteFile(file, []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	return layWAN(t, func(ctx context.Context, _ int, _ wansim.Link) (*testbed.WAN, error) {
		return program(t).Lay(ctx, file)
	}, 2, wansim.Link{})
}

// wanBytes returns the bytes of the link, as gradproxy wan reports them, from the first site's side.
func wanBytes(t *testing.T, report func(context.Context) (testbed.Carried, error)) map[string]float64 {
	t.Helper()
	c, err := report(deadline(t, time.Minute))
	if err != nil || len(c.Links) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	return map[string]float64{"sent": float64(c.Links[0].Bytes), "received": float64(c.Links[1].Bytes)}
}

// panel returns the number that Grafana's overview shows in a panel.
func panel(t *testing.T, prometheus *promtest.Server, title string) float64 {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("../deploy/grafana/gradproxy-overview.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Title == title {
			return prometheus.Number(t, strings.NewReplacer("$instance", ".*", "$peer", ".*").Replace(p.Targets[0].Expr))
		}
	}
	t.Fatalf("no panel is called %q", title)
	return 0
}

// shadowAndBudget compares the sections of shadow mode and of the budget with the metrics. The job has ended.
func shadowAndBudget(t *testing.T, b *browser, p *testbed.Proxy) {
	t.Helper()
	m, err := p.Metrics(deadline(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	b.await(`document.querySelectorAll("#shadow-tensors tbody tr").length >= 2`)
	now, raw := testbed.Sum(m, "gradproxy_wire_bytes_total"), testbed.Sum(m, "gradproxy_raw_bytes_total")
	for _, codec := range []string{"int8", "3lc(s=1.75)"} {
		predicted := testbed.Sum(m, "gradproxy_shadow_predicted_bytes", `codec="`+codec+`"`)
		shown := eval[float64](b, fmt.Sprintf(`Number(document.querySelector("#shadow-all tr[data-codec='%s']").dataset.bytes)`, codec))
		if !(predicted > 0) || shown < predicted || shown > raw {
			t.Errorf("%s: the page predicts %.0f bytes, the metrics %.0f for the roles that were tried; %.0f were sent, of %.0f", codec, shown, predicted, now, raw)
		}
		text := eval[string](b, fmt.Sprintf(`document.querySelector("#shadow-all tr[data-codec='%s']").innerText`, codec))
		if !strings.Contains(text, "USD") || !strings.Contains(text, "%") {
			t.Errorf("%s: the page says %q", codec, text)
		}
		if cost := testbed.Sum(m, "gradproxy_shadow_predicted_egress", `codec="`+codec+`"`, `currency="USD"`); cost < 0.09*predicted/1e9 || cost > 0.12*predicted/1e9 {
			t.Errorf("%s: %.0f bytes cost %v", codec, predicted, cost)
		}
	}
	used := testbed.Sum(m, "gradproxy_budget_used_bytes")
	gauge := eval[float64](b, `Number(document.querySelector("#budget-list [role=meter]").getAttribute("aria-valuenow"))`)
	if math.Abs(gauge-100*used/50e9) > 0.06 {
		t.Errorf("the gauge of the budget is at %v %%, and %.0f of 5e10 bytes are used", gauge, used)
	}
	if text := eval[string](b, `document.getElementById("budget-list").innerText`); !strings.Contains(text, "will last") || !strings.Contains(text, "int8 from 25 GB on") || !strings.Contains(text, "of 50.0\u00a0GB used") {
		t.Errorf("the budget is explained by\n%s", text)
	}
}

// peersHalf has the page show the tensors that the peer sends: each is a tile, and opens as itself.
func peersHalf(t *testing.T, b *browser) {
	t.Helper()
	const choose = `(() => { const s = document.getElementById("half"); s.selectedIndex = %d; s.dispatchEvent(new Event("change", { bubbles: true })) })()`
	const tiles = `[...document.querySelectorAll(".tilet:not(.group)")]`
	b.do(chromedp.Evaluate(fmt.Sprintf(choose, 1), nil))
	b.await(tiles + `.length >= 3`)
	for i := range 3 {
		b.do(chromedp.Evaluate(fmt.Sprintf(tiles+`[%d].click()`, i), nil))
		b.await(fmt.Sprintf(`%s[%d].getAttribute("aria-label").startsWith((document.querySelector("#detail h3")?.textContent ?? "none") + ", ")`, tiles, i))
	}
	b.do(chromedp.Evaluate(fmt.Sprintf(choose, 0), nil))
}

// near fails unless two counts of bytes agree.
func near(t *testing.T, name string, got, want float64) {
	t.Helper()
	if off := math.Abs(got-want) / want; !(off <= agreement) {
		t.Errorf("%s: %.0f and %.0f bytes, %.2f %% apart", name, got, want, 100*off)
	}
}

func linkBytes(c *testbed.PacketCount) map[string]float64 {
	out, in := c.Counts()
	return map[string]float64{"sent": float64(out.Bytes), "received": float64(in.Bytes)}
}

func metricsOf(t *testing.T, p *testbed.Proxy) map[string]float64 {
	t.Helper()
	m, err := p.Metrics(deadline(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]float64{"raw": testbed.Sum(m, "gradproxy_raw_bytes_total"), "delivered": testbed.Sum(m, "gradproxy_delivered_bytes_total"),
		"sent": testbed.Sum(m, "gradproxy_peer_network_sent_bytes_total"), "received": testbed.Sum(m, "gradproxy_peer_network_received_bytes_total")}
}

// A topCount has the counts of an object of gradproxy top.
type topCount struct {
	Raw       float64 `json:"raw_bytes"`
	Delivered float64 `json:"delivered_bytes"`
	Network   struct {
		Sent     float64 `json:"sent_bytes"`
		Received float64 `json:"received_bytes"`
	} `json:"network"`
}

func topOf(t *testing.T, ctx context.Context, p *testbed.Proxy) (c topCount) {
	t.Helper()
	out, err := program(t).Run(ctx, p, "top", "--json", "--count", "1", "--admin", "127.0.0.1:9090")
	if err == nil {
		err = json.Unmarshal(out, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nearest returns the most frequent colours of a picture, at most 256.
func nearest(m image.Image) color.Palette {
	count := map[color.RGBA]int{}
	b := m.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var p color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		p = append(p, c)
	}
	return p
}
