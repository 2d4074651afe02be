package vm

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modules are the modules of a kernel, in files that are not compressed.
type modules struct {
	dir     string
	files   map[string]string // path by module name
	builtin map[string]bool   // modules that the kernel contains
}

// openModules reads the directory that pattern matches (filepath.Glob).
func openModules(pattern string) (*modules, error) {
	dir, err := one(pattern)
	if err != nil {
		return nil, err
	}
	m := &modules{dir, map[string]string{}, map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		m.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".ko") {
			m.files[moduleName(path)] = path
		}
		return err
	})
	return m, err
}

// one returns the only file that matches pattern.
func one(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: one file expected, found %v", pattern, found)
	}
	return found[0], nil
}

// moduleName returns the name of the module in a file.
func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

// resolve returns the files of modules, each after the modules that it needs. Modules that the kernel contains have no
// file.
func (m *modules) resolve(names []string) (files []string, err error) {
	for _, name := range names {
		if m.builtin[name] {
			continue
		}
		path, ok := m.files[name]
		if !ok {
			return nil, fmt.Errorf("%s has no module %s", m.dir, name)
		}
		needs, err := needed(path)
		if err != nil {
			return nil, err
		}
		before, err := m.resolve(needs)
		if err != nil {
			return nil, err
		}
		for _, file := range append(before, path) {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}

// needed returns the names of the modules that a module needs, which it lists itself.
func needed(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s: no section .modinfo", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
