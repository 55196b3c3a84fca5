// Command tohf writes the Hugging Face folder of a GGUF file of a reference model, by the inverse of llama.cpp's conversion (test/oracle).
//
//	go run ./test/oracle/tohf MODEL.gguf DIR
package main

import (
	"fmt"
	"os"

	"ck/internal/gguf"
	"ck/test/oracle"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: tohf MODEL.gguf DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "tohf:", err)
		os.Exit(1)
	}
}

func write(path, dir string) error {
	m, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return oracle.Folder(m, dir)
}
