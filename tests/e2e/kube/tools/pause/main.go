// Pause holds a pod's namespaces open: it waits for the signal to stop, and as process 1 it reaps what is left to it.
//
// With arguments it is what a test runs by `kubectl exec` to look at the world from inside of a pod:
//
//	pause lookup NAME        the addresses of a name, one a line
//	pause fetch URL          what an HTTP server answers
//	pause write FILE TEXT    write a file and sync it
//	pause read FILE          a file's text
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 1 {
		wait()
		return
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command string, arguments []string) error {
	switch {
	case command == "lookup" && len(arguments) == 1:
		addresses, err := net.LookupHost(arguments[0])
		for _, address := range addresses {
			fmt.Println(address)
		}
		return err
	case command == "fetch" && len(arguments) == 1:
		client := http.Client{Timeout: 10 * time.Second}
		answer, err := client.Get(arguments[0])
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(os.Stdout, answer.Body)
		return err
	case command == "write" && len(arguments) == 2:
		return write(arguments[0], arguments[1])
	case command == "read" && len(arguments) == 1:
		text, err := os.ReadFile(arguments[0])
		os.Stdout.Write(text)
		return err
	}
	return fmt.Errorf("no such command: %s with %d arguments", command, len(arguments))
}

func write(name, text string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	return file.Sync()
}

func wait() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	children := make(chan os.Signal, 8)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-stop:
			return
		case <-children:
			reap()
		}
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != syscall.EINTR && (pid <= 0 || err != nil) {
			return
		}
	}
}
