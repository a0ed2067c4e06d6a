// Program uses all the ways in which Go's functions are left and resumed, and prints the results.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

func main() {
	for _, part := range []struct {
		name string
		run  func() any
	}{
		{"loops", func() any { return loops(40) }},
		{"switches", func() any { return switches("the quick brown fox 0123456789 jumps") }},
		{"goroutines", func() any { return goroutines(50) }},
		{"select", func() any { return selects(100) }},
		{"recover", func() any { return recovers() }},
		{"again", func() any { return panicsAgain() }},
		{"goexit", func() any { return exits() }},
		{"stack", func() any { return deep(20000, [4]int{1, 2, 3, 4}) }},
		{"closures", func() any { return closures() }},
		{"garbage", func() any { return garbage(2000) }},
		{"iterators", func() any { return iterators(9) }},
	} {
		fmt.Println(part.name, part.run())
	}
	defer fmt.Println("never printed")
	os.Exit(7)
}

// loops jumps back and forth, out of the middle and over several loops.
func loops(n int) (sum int) {
outer:
	for i := 0; i < n; i++ {
		for j := i; ; j += 3 {
			switch {
			case j%7 == 3:
				continue outer
			case j > 2*n:
				break outer
			case (i+j)%5 == 0:
				sum += i * j
				runtime.Gosched()
			}
			sum++
		}
	}
	return sum
}

func switches(s string) string {
	var out strings.Builder
	for _, c := range s {
		switch {
		case c == ' ':
			out.WriteByte('_')
			fallthrough
		case c == 'q', c == 'u':
			out.WriteByte('!')
		case c >= '0' && c <= '9':
			switch c {
			case '0', '2', '4', '6', '8':
				out.WriteByte('e')
			default:
				out.WriteByte('o')
			}
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}

// goroutines are switched in the middle of functions, and resumed there.
func goroutines(n int) (sum int) {
	jobs, results := make(chan int), make(chan int, 3)
	var group sync.WaitGroup
	for range 7 {
		group.Go(func() {
			for job := range jobs {
				for i := range job {
					if i%3 == 0 {
						runtime.Gosched()
					}
					results <- i
				}
			}
		})
	}
	go func() {
		for i := range n {
			jobs <- i
		}
		close(jobs)
		group.Wait()
		close(results)
	}()
	for r := range results {
		sum += r
	}
	return sum
}

func selects(n int) (got [3]int) {
	a, b, quit := make(chan int), make(chan int), make(chan bool)
	go func() {
		for i := range n {
			if i%3 == 0 {
				b <- i
			} else {
				a <- i
			}
		}
		close(quit)
	}()
	for {
		select {
		case v := <-a:
			got[0] += v
		case v := <-b:
			got[1] += v
		case <-quit:
			got[2]++
			return got
		}
	}
}

type node struct{ next *node }

// recovers panics in all the ways of the runtime, and returns all the same.
func recovers() (messages []string) {
	try := func(f func() int) (result int) {
		defer func() {
			if r := recover(); r != nil {
				messages = append(messages, fmt.Sprint(r))
				result = -1
			}
		}()
		return f()
	}
	numbers, zero := []int{1, 2, 3}, 0
	var nobody *node
	var table map[string]int
	var anything any = "text"
	results := []int{
		try(func() int { return numbers[len(numbers)+zero] }),
		try(func() int { return len(numbers[2 : 1+zero]) }),
		try(func() int { return numbers[0] / zero }),
		try(func() int { nobody.next.next = nil; return 1 }),
		try(func() int { table["a"] = 1; return 1 }),
		try(func() int { return anything.(int) }),
		try(func() int { panic(errors.New("own")) }),
		try(func() int { return len(make([]byte, -1+zero)) }),
		try(func() int { return 42 }),
	}
	return append(messages, fmt.Sprint(results))
}

// panicsAgain panics during a panic, with more than one deferred function.
func panicsAgain() (trace []string) {
	note := func(s string) { trace = append(trace, s) }
	func() {
		defer func() { note(fmt.Sprint("outer ", recover())) }()
		for i := range 3 {
			defer func() { note(fmt.Sprint("loop ", i)) }()
		}
		func() {
			defer func() {
				note(fmt.Sprint("inner ", recover()))
				panic("second")
			}()
			defer note("first deferred")
			panic("first")
		}()
		note("never")
	}()
	return trace
}

func exits() (trace []string) {
	done := make(chan bool)
	go func() {
		defer close(done)
		defer func() { trace = append(trace, fmt.Sprint("recovered ", recover())) }()
		func() {
			defer func() { trace = append(trace, "deferred") }()
			runtime.Goexit()
		}()
		trace = append(trace, "never")
	}()
	<-done
	return trace
}

// deep makes the stack grow and move.
func deep(n int, frame [4]int) int {
	if n == 0 {
		return frame[0]
	}
	at := &frame[n%4]
	*at += n
	return deep(n-1, frame)%1_000_003 + *at%7
}

func closures() (sum int) {
	var fs []func(int) int
	for i := range 10 {
		fs = append(fs, func(x int) int {
			defer func() { i++ }()
			return x*i + len(fs)
		})
	}
	for _, f := range fs {
		sum += f(3) + f(4)
	}
	return sum
}

func garbage(n int) (sum int) {
	kept := map[int]*node{}
	for i := range n {
		kept[i%97] = &node{next: kept[(i+1)%97]}
		if i%500 == 0 {
			runtime.GC()
		}
	}
	for _, k := range kept {
		for at := k; at != nil && sum < 1_000_000; at = at.next {
			sum++
		}
	}
	return min(sum, 1)
}

func iterators(n int) (all []int) {
	numbers := func(yield func(int) bool) {
		defer func() { all = append(all, -1) }()
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
	for i := range numbers {
		if i == n-2 {
			break
		}
		if i%2 == 0 {
			continue
		}
		all = append(all, i)
	}
	return append(all, slices.Collect(numbers)...)
}
