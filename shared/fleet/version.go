package fleet

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// maxVersion bounds the name of a version, which is also that of a directory.
const maxVersion = 64

var versionForm = regexp.MustCompile(`^v?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(-[0-9A-Za-z]+([.-][0-9A-Za-z]+)*)?$`)

// IsVersion says whether a text names a release: 1.2.3, v1.2.3 or 1.2.3-rc.1.
func IsVersion(v string) bool { return len(v) <= maxVersion && versionForm.MatchString(v) }

// CompareVersions orders two releases as semantic versions: below, at or above zero. It
// is false where one of them names no release, such as a build from a working copy:
// nothing is older or newer than that.
func CompareVersions(a, b string) (order int, ok bool) {
	if !IsVersion(a) || !IsVersion(b) {
		return 0, false
	}
	x, y := versionForm.FindStringSubmatch(a), versionForm.FindStringSubmatch(b)
	for i := 1; i <= 3; i++ {
		if order = compareNumbers(x[i], y[i]); order != 0 {
			return order, true
		}
	}
	switch p, q := x[4], y[4]; {
	case p == q:
		return 0, true
	case p == "": // what is released comes after what led to it
		return 1, true
	case q == "":
		return -1, true
	default:
		return comparePre(p[1:], q[1:]), true
	}
}

// comparePre orders what follows the dash: part by part, numbers below words.
func comparePre(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		if x[i] == y[i] {
			continue
		}
		_, errX := strconv.ParseUint(x[i], 10, 64)
		_, errY := strconv.ParseUint(y[i], 10, 64)
		switch {
		case errX == nil && errY == nil:
			return compareNumbers(x[i], y[i])
		case errX == nil:
			return -1
		case errY == nil:
			return 1
		}
		return cmp.Compare(x[i], y[i])
	}
	return cmp.Compare(len(x), len(y))
}

func compareNumbers(a, b string) int {
	x, _ := strconv.ParseUint(a, 10, 64)
	y, _ := strconv.ParseUint(b, 10, 64)
	return cmp.Compare(x, y)
}
