//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeSystemctl stands for systemctl: a unit runs if a file has its name. A gradproxy that gradproxy-next has relieved
// ends after as many looks at it as the file "looks" says, and a start fails if a file is called fails-UNIT.
const fakeSystemctl = `#!/bin/sh
cd "$UNITS"
case $1 in
is-active)
	if [ "$3" = gradproxy ] && [ -e gradproxy ] && [ -e gradproxy-next ]; then
		n=$(cat looks)
		[ "$n" = 0 ] && rm gradproxy
		[ "$n" = never ] || echo $((n - 1)) >looks
	fi
	[ -e "$3" ]
	;;
start)
	[ ! -e "fails-$2" ] || exit 1
	[ ! -e "$2" ] || exit 0
	touch "$2"
	[ "$2" != gradproxy ] || rm -f gradproxy-next
	;;
reset-failed) ;;
*) exit 9 ;;
esac
`

// The script of package upgrades says that the new version has taken over only if it has, and goes on where an earlier
// upgrade has come half way.
func TestUpgradeScript(t *testing.T) {
	script, err := os.ReadFile("../deploy/packages/upgrade.sh")
	if err != nil {
		t.Fatal(err)
	}
	const socket = "upgrade: {socket: /run/gradproxy/paris.upgrade}\n"
	for name, c := range map[string]struct {
		config, looks string
		runs, fails   []string
		says          string
		left          string // units that run in the end
	}{
		"usual":                 {socket, "3", []string{"gradproxy"}, nil, "the new version has taken over", "gradproxy"},
		"nothing runs":          {socket, "3", nil, nil, "nothing to upgrade", ""},
		"no socket":             {"site: paris\n", "3", []string{"gradproxy"}, nil, "without upgrade.socket", "gradproxy"},
		"cannot take over":      {socket, "3", []string{"gradproxy"}, []string{"gradproxy-next"}, "the old version runs on", "gradproxy"},
		"the old one stays":     {socket, "never", []string{"gradproxy"}, nil, "the old process has not ended", "gradproxy gradproxy-next"},
		"half way":              {socket, "3", []string{"gradproxy-next"}, nil, "the new version has taken over", "gradproxy"},
		"both, half way":        {socket, "3", []string{"gradproxy", "gradproxy-next"}, nil, "the new version has taken over", "gradproxy"},
		"cannot take back over": {socket, "3", []string{"gradproxy"}, []string{"gradproxy"}, "runs as gradproxy-next.service", "gradproxy-next"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			units, bin, config := filepath.Join(dir, "units"), filepath.Join(dir, "bin"), filepath.Join(dir, "gradproxy.yaml")
			files := map[string]string{filepath.Join(bin, "systemctl"): fakeSystemctl, filepath.Join(bin, "sleep"): "#!/bin/sh\n", config: c.config,
				filepath.Join(dir, "upgrade"): strings.ReplaceAll(string(script), "/etc/gradproxy/gradproxy.yaml", config), filepath.Join(units, "looks"): c.looks}
			for _, unit := range c.runs {
				files[filepath.Join(units, unit)] = ""
			}
			for _, unit := range c.fails {
				files[filepath.Join(units, "fails-"+unit)] = ""
			}
			for path, text := range files {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("/bin/sh", filepath.Join(dir, "upgrade"))
			cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "UNITS=" + units}
			said, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(said), c.says) || strings.Count(string(said), "\n") != 1 {
				t.Errorf("%v: it says %q, want %q", err, said, c.says)
			}
			var left []string
			for _, unit := range []string{"gradproxy", "gradproxy-next"} {
				if _, err := os.Stat(filepath.Join(units, unit)); err == nil {
					left = append(left, unit)
				}
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("%q run in the end, want %q", got, c.left)
			}
		})
	}
}
