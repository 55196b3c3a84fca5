package main

import (
	"io"

	"ck/internal/cli"
	"ck/internal/picture"
)

// pictureOptions are the flags of pictures.
type pictureOptions struct {
	svg, png string
	force    bool
}

func (p *program) pictureFlags(g cli.Group, o *pictureOptions) {
	g.Text(&o.svg, "svg", "", "", "FILE", "draw it as SVG")
	g.Text(&o.png, "png", "", "", "FILE", "draw it as PNG")
	g.Bool(&o.force, "force", "", "overwrite the pictures")
}

// pictures are the files of --svg and --png, as far as they are asked for.
type pictures map[picture.Format]*cli.File

// openPictures begins the files, before any work is done.
func (p *program) openPictures(o *pictureOptions) (pictures, error) {
	files := pictures{}
	for format, name := range map[picture.Format]string{picture.SVG: o.svg, picture.PNG: o.png} {
		if name == "" {
			continue
		}
		if name == "-" {
			files.abort()
			return nil, cli.Usage("--%s: stdout has the table; name a file", format)
		}
		f, err := p.app.Create(name, o.force)
		if err != nil {
			files.abort()
			return nil, err
		}
		files[format] = f
	}
	return files, nil
}

// draw writes the files.
func (f pictures) draw(draw func(io.Writer, picture.Format) error) error {
	for format, file := range f {
		if err := draw(file, format); err != nil {
			return err
		}
		if err := file.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// abort removes what is not finished.
func (f pictures) abort() {
	for _, file := range f {
		file.Abort()
	}
}
