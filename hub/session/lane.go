package session

import "sync"

// lane runs the tasks of one session one after another. Its goroutine exists only
// while there is something to do, so an idle session costs none.
type lane struct {
	spawn func(func()) bool
	room  chan struct{} // one token a task that waits or runs
	mu    sync.Mutex
	tasks []func()
	busy  bool
}

func newLane(spawn func(func()) bool, depth int) *lane {
	return &lane{spawn: spawn, room: make(chan struct{}, depth)}
}

// do queues a task. It waits while the lane is full, which a runner that keeps to
// its bounds never sees, and gives up when done closes; then the task never runs.
func (l *lane) do(done <-chan struct{}, task func()) bool {
	select {
	case l.room <- struct{}{}:
	case <-done:
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = append(l.tasks, task)
	if l.busy {
		return true
	}
	l.busy = l.spawn(l.run)
	if !l.busy {
		l.tasks = nil
	}
	return l.busy
}

func (l *lane) run() {
	for {
		l.mu.Lock()
		if len(l.tasks) == 0 {
			l.tasks, l.busy = nil, false
			l.mu.Unlock()
			return
		}
		task := l.tasks[0]
		l.tasks = l.tasks[1:]
		l.mu.Unlock()
		task()
		<-l.room
	}
}
