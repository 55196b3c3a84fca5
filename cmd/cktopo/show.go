package main

import (
	"os"
	"strconv"

	"golang.org/x/term"

	"ck/internal/cli"
	"ck/internal/page"
	"ck/internal/picture"
	"ck/internal/topo"
)

// show prints the page, or what the flags ask for instead.
func (p *program) show() error {
	if p.draw && (p.app.Common.JSON || p.app.Common.Plain) {
		return cli.Usage("--draw: is for people; leave out --json and --plain")
	}
	if p.svg == "-" && p.png == "-" {
		return cli.Usage("--svg, --png: only one picture can go to stdout; name a file")
	}
	s, err := p.survey()
	if err != nil {
		return err
	}
	for format, name := range map[picture.Format]string{picture.SVG: p.svg, picture.PNG: p.png} {
		if name == "" {
			continue
		}
		if err := p.writePicture(name, format, &s); err != nil {
			return err
		}
	}
	if p.svg == "-" || p.png == "-" {
		return nil
	}
	switch {
	case p.app.Common.JSON:
		return cli.OutError(page.WriteJSON(p.app.Out, &s, p.root))
	case p.draw:
		return cli.OutError(picture.MachineText(p.app.Text(), &s, p.columns(drawWidth), !cli.UTF8()))
	}
	return cli.OutError(page.Write(p.app.Text(), &s, p.app.Common.Plain, p.columns(page.Width)))
}

// writePicture writes the picture of --svg or --png.
func (p *program) writePicture(name string, format picture.Format, s *topo.Survey) error {
	f, err := p.app.Create(name, p.force)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := picture.Machine(f, format, s); err != nil {
		return cli.OutError(err)
	}
	return f.Commit()
}

// Columns of what is printed where neither a flag nor a terminal nor the environment says it.
const (
	drawWidth = 100
	minWidth  = 40
)

// columns is how wide the output may be: --width, else the terminal's, else COLUMNS, else def.
func (p *program) columns(def int) int { return columns(p.app, p.width, def) }

// columns is a width that was asked for, unless 0, else as program.columns says.
func columns(app *cli.App, width, def int) int {
	if width > 0 {
		return width
	}
	if w, _, err := term.GetSize(int(app.Out.Fd())); err == nil && w > 0 {
		return max(w, minWidth)
	}
	if w, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && w > 0 && w < 10000 {
		return max(w, minWidth)
	}
	return def
}
