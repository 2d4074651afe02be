package residual

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gradproxy/gradproxy/tensor"
)

// saved returns a file with that many tensors of 1000 float32.
func saved(t *testing.T, tensors int) []byte {
	t.Helper()
	s := New(1<<30, Events{})
	for key := range tensors {
		m := s.Dense("job", tensor.Tensor{Key: uint64(key) + 1, DType: tensor.Float32, Size: 4000}, true)
		m.residual[key] = 1
	}
	s.Dense("job", tensor.Tensor{Key: 99, DType: tensor.Float32, Size: 4000}, true) // has no residual
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A file that is damaged in any way is refused whole.
func TestDamagedResidualsAreRefused(t *testing.T) {
	good := saved(t, 3)
	if want := 3 * 4000; len(good) < want || len(good) > want+100 {
		t.Errorf("the file has %d bytes, want little more than %d", len(good), want)
	}
	r := rand.New(rand.NewPCG(11, 12))
	s := New(1<<30, Events{})
	for range 500 {
		bad := bytes.Clone(good)
		if r.IntN(2) == 0 {
			bad = bad[:r.IntN(len(bad))]
		} else {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
		if err := s.Load(bytes.NewReader(bad)); !errors.Is(err, ErrFile) {
			t.Fatalf("a damaged file: %v", err)
		}
		if s.dense.Len() != 0 || s.bytes != 0 {
			t.Fatal("a damaged file was loaded in part")
		}
	}
	if err := s.Load(bytes.NewReader(good)); err != nil || s.dense.Len() != 3 {
		t.Fatalf("%d tensors of the good file, %v", s.dense.Len(), err)
	}
}

// A file that is right but not sensible is refused as well: more than may be remembered, of another version, with a
// residual that would never go away.
func TestForeignResidualsAreRefused(t *testing.T) {
	seal := func(b []byte) []byte {
		b = append(slices.Clone(b[:len(b)-5]), 0)
		return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	later := saved(t, 1)
	later[len(magic)-1] = '2'
	infinite := saved(t, 1)
	binary.LittleEndian.PutUint32(infinite[len(infinite)-9:], math.Float32bits(float32(math.Inf(1))))
	huge := append([]byte(magic), 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32))
	huge = append(binary.AppendUvarint(huge, 1<<60), 0, 0, 0, 0, 0)
	for name, x := range map[string]struct {
		file  []byte
		limit int64
		says  string
	}{
		"text":     {[]byte("residuals, they say"), 1 << 30, "not a file of residuals of this version"},
		"empty":    {nil, 1 << 30, "not a file of residuals of this version"},
		"longer":   {append(saved(t, 1), 0), 1 << 30, "bytes follow its end"},
		"later":    {seal(later), 1 << 30, "not a file of residuals of this version"},
		"too much": {saved(t, 3), 2 * denseCost(tensor.Float32, 4000), "tensor 3 is more than may be remembered"},
		"huge":     {seal(huge), 1 << 30, "tensor 1 is more than may be remembered"},
		"infinite": {seal(infinite), 1 << 30, "tensor 1 is damaged"},
	} {
		s := New(x.limit, Events{})
		err := s.Load(bytes.NewReader(x.file))
		if !errors.Is(err, ErrFile) || !strings.HasSuffix(err.Error(), x.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an ErrFile that says %q", name, err, x.says)
		}
		if s.dense.Len() != 0 {
			t.Errorf("%s: it was loaded", name)
		}
	}
}

// Rows of a file are refused if they are not sensible, and are of lasting tensors with residuals only.
func TestRowsOfAFile(t *testing.T) {
	entry := func(key byte, d tensor.DType, width uint64, values ...float32) []byte {
		b := []byte{entryRows, 1, 'j', key, 0, 0, 0, 0, 0, 0, 0, byte(d)}
		b = binary.AppendUvarint(binary.AppendUvarint(b, width), min(1, uint64(len(values)))) // one row, or none
		if len(values) > 0 {
			b = binary.LittleEndian.AppendUint64(b, 5)
		}
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	var many [][]byte
	for i := range maxArrays + 1 {
		b := entry(0, tensor.Float32, 2)
		binary.LittleEndian.PutUint16(b[3:], uint16(i))
		many = append(many, b)
	}
	for name, c := range map[string]struct {
		entries [][]byte
		arrays  int // that are loaded; 0: the file is refused
	}{
		"one row":                   {[][]byte{entry(1, tensor.Float32, 2, 1, 2)}, 1},
		"one row twice":             {[][]byte{entry(1, tensor.Float32, 2, 1, 2), entry(1, tensor.Float32, 2, 3, 4)}, 1},
		"as many arrays as may be":  {many[:maxArrays], maxArrays},
		"more":                      {many, 0},
		"of two widths":             {[][]byte{entry(1, tensor.Float32, 2, 1, 2), entry(1, tensor.Float32, 3, 1, 2, 3)}, 0},
		"of two types":              {[][]byte{entry(1, tensor.Float32, 2, 1, 2), entry(1, tensor.Float16, 2, 1, 2)}, 0},
		"without elements":          {[][]byte{entry(1, tensor.Float32, 0)}, 0},
		"of integers":               {[][]byte{entry(1, tensor.Int32, 2, 1, 2)}, 0},
		"of a type that nobody has": {[][]byte{entry(1, 200, 2, 1, 2)}, 0},
		"infinite":                  {[][]byte{entry(1, tensor.Float32, 2, 1, float32(math.Inf(-1)))}, 0},
	} {
		file := append(bytes.Join(append([][]byte{[]byte(magic)}, c.entries...), nil), entryEnd)
		file = binary.LittleEndian.AppendUint32(file, crc32.Checksum(file, castagnoli))
		s := New(1<<30, Events{})
		if err := s.Load(bytes.NewReader(file)); (err == nil) != (c.arrays > 0) || err != nil && !errors.Is(err, ErrFile) || len(s.rows) != c.arrays {
			t.Errorf("%s: %d arrays are loaded, %v; want %d", name, len(s.rows), err, c.arrays)
		}
	}

	s, again := New(1<<30, Events{}), New(1<<30, Events{})
	lasts := s.Rows("job", tensor.Tensor{Keys: 1, DType: tensor.Float32}, 2, true)
	s.GiveRows(lasts, idsOf(5, 6), []float32{1, 2, 3, 4})
	lasts.Take(idsOf(6), make([]float32, 2))
	s.Rows("job", tensor.Tensor{Keys: 2, DType: tensor.Float32}, 2, true) // has no rows
	s.GiveRows(s.Rows("job", tensor.Tensor{Keys: 3, DType: tensor.Float32}, 2, false), idsOf(5), []float32{1, 2})
	var file bytes.Buffer
	if err := errors.Join(s.Save(&file), again.Load(bytes.NewReader(file.Bytes()))); err != nil || len(again.rows) != 1 {
		t.Fatalf("%d arrays are loaded, %v; want 1", len(again.rows), err)
	}
	m, got := again.rows[lasts.rowsKey], make([]float32, 4)
	if n := len(m.rows); n != 1 {
		t.Errorf("%d rows are loaded, want the one with a residual", n)
	}
	if m.Take(idsOf(5, 6), got); !slices.Equal(got, []float32{1, 2, 0, 0}) {
		t.Errorf("the residuals of rows 5 and 6 are %v", got)
	}
}

// A reader that finds out at the end that its bytes are false has nothing loaded.
func TestFalseBytesAreNotLoaded(t *testing.T) {
	wrong := errors.New("false bytes")
	for _, size := range []int{1, 40} { // in one piece of the reader's buffer, and in several
		s := New(1<<30, Events{})
		err := s.Load(io.MultiReader(bytes.NewReader(saved(t, size)), iotest.ErrReader(wrong)))
		if !errors.Is(err, ErrFile) || !errors.Is(err, wrong) || s.dense.Len() != 0 || s.bytes != 0 {
			t.Errorf("%d tensors: %v, %d are loaded", size, err, s.dense.Len())
		}
	}
}

// Whatever a file says, loading it takes no more memory than is allowed, and leaves all or nothing.
func FuzzLoad(f *testing.F) {
	const limit = 1 << 20
	s := New(1<<30, Events{})
	m := s.Dense("job", tensor.Tensor{Key: 7, DType: tensor.BFloat16, Size: 64}, true)
	m.residual[3] = 1
	rows := s.Rows("job", tensor.Tensor{Keys: 8, DType: tensor.Float16}, 3, true)
	s.GiveRows(rows, idsOf(5, 6), []float32{1, 2, 3, 4, 5, 6})
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes()[len(magic) : file.Len()-4])
	f.Add([]byte{2, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32), 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1})
	f.Add([]byte{1, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add(append(binary.AppendUvarint([]byte{2, 0, 1, 2, 3, 4, 5, 6, 7, 8, byte(tensor.Float32)}, 1<<62), 1, 1, 2, 3, 4, 5, 6, 7, 8, 0)) // 4 bytes for each element of a row are 0, in 64 bits
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte(magic), body...) // sealed, so that its sum does not give damage away
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		s := New(limit, Events{})
		err := s.Load(bytes.NewReader(b))
		if err != nil && (!errors.Is(err, ErrFile) || s.bytes != 0) {
			t.Errorf("%v, %d bytes are remembered", err, s.bytes)
		}
		if s.bytes > limit {
			t.Errorf("%d bytes are remembered", s.bytes)
		}
	})
}

// Tensors that have come before the file was loaded keep their residuals.
func TestLoadingKeepsWhatIsNewer(t *testing.T) {
	s := New(1<<30, Events{})
	m := s.Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true)
	m.residual[0] = 7
	if err := s.Load(bytes.NewReader(saved(t, 2))); err != nil {
		t.Fatal(err)
	}
	if now := s.Dense("job", tensor.Tensor{Key: 1, DType: tensor.Float32, Size: 4000}, true); now != m || now.residual[0] != 7 {
		t.Errorf("the residual is %v, want 7", now.residual[0])
	}
	if other := s.Dense("job", tensor.Tensor{Key: 2, DType: tensor.Float32, Size: 4000}, true); other.residual[1] != 1 {
		t.Errorf("the other's residual is %v, want 1", other.residual[1])
	}
}

// A file of a version that knew no rows still loads.
func TestFileWithoutRowsLoads(t *testing.T) {
	b := append([]byte(magic), 1, 3)
	b = append(b, "job"...)
	b = binary.LittleEndian.AppendUint64(b, 77)
	b = append(b, byte(tensor.Float16), 4)
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(0))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(2.5))
	b = append(b, 0)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	s := New(1<<30, Events{})
	if err := s.Load(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if x := s.Dense("job", tensor.Tensor{Key: 77, DType: tensor.Float16, Size: 4}, true).residual; !slices.Equal(x, []float32{0, 2.5}) {
		t.Errorf("the residual is %v", x)
	}
}
