package runner

const childVar = "TUGLINE_TEST_RUNNER_CHILD"

func childRunner() int { return 1 }
