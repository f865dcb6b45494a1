//go:build harness && !soak

package harness_test

// soak says that every case is tried with every CLI that has it.
const soak = false
