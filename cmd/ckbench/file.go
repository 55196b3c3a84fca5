package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ck/internal/cli"
	"ck/internal/mapfile"
	"ck/internal/measure"
)

const (
	filePiece = 1 << 20
	fileLimit = 4 << 30 // bytes that are read at most, of each way
)

// fileRow is a way of reading a file.
type fileRow struct {
	Way  string  `json:"way"`
	MB   float64 `json:"mb"`
	GBps float64 `json:"gb_per_s"` // 0: not possible, see Note
	Note string  `json:"note"`
}

// fileBandwidth reads a file in several ways, one thread, front to back.
func (p *program) fileBandwidth(name string) error {
	st, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular() || st.Size() == 0:
		return cli.Input("%s: is no file with content; name a model file", name)
	}
	ways := []struct {
		name string
		read func(string) (int64, error)
	}{{"O_DIRECT, past the page cache", readDirect}, {"read, page cache as it is", readPlain}, {"read, page cache warm", readPlain}, {"mapped, page cache warm", readMapped}}
	var rows []fileRow
	var cells [][]string
	for _, w := range ways {
		start := time.Now()
		n, err := w.read(name)
		d := time.Since(start).Seconds()
		r := fileRow{Way: w.name, MB: float64(n) / 1e6}
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
			r.Note = "the file system does not allow it"
		case err != nil:
			return err
		default:
			r.GBps = float64(n) / d / 1e9
		}
		rows = append(rows, r)
		speed := r.Note
		if r.GBps > 0 {
			speed = fixed(r.GBps)
		}
		cells = append(cells, []string{r.Way, fmt.Sprintf("%.0f", r.MB), speed})
	}
	return p.table("ck.bench.file/1", "ways", rows, []string{"way", "MB", "GB/s"}, cells)
}

func readPlain(name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := int64(0)
	buf := make([]byte, filePiece)
	for n < fileLimit {
		k, err := f.Read(buf)
		n += int64(k)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func readDirect(name string) (int64, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	raw := make([]byte, filePiece+4096)
	buf := raw[-uintptr(unsafe.Pointer(&raw[0]))&4095:][:filePiece]
	n := int64(0)
	for n < fileLimit {
		k, err := f.Read(buf)
		n += int64(k)
		if errors.Is(err, io.EOF) || k == 0 || k%4096 != 0 {
			break
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func readMapped(name string) (int64, error) {
	f, err := mapfile.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := f.Data[:min(int64(len(f.Data)), fileLimit)]
	err = f.Guard(func() error { measure.Touch(b); return nil })
	return int64(len(b)), err
}
