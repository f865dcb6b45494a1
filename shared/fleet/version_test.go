package fleet

import "testing"

func TestCompareVersions(t *testing.T) {
	// Each is older than the next.
	rising := []string{
		"0.9.0", "0.10.0", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.0.1", "v1.2.0", "2.0.0", "10.0.0",
	}
	for i, a := range rising {
		for j, b := range rising {
			got, ok := CompareVersions(a, b)
			if want := i - j; !ok || (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("CompareVersions(%s, %s) = %d, %v, want the sign of %d", a, b, got, ok, want)
			}
		}
	}
	if got, ok := CompareVersions("v1.2.3", "1.2.3"); got != 0 || !ok {
		t.Errorf("with and without v: %d, %v", got, ok)
	}
	for _, bad := range []string{"", "dev", "dev-0123456789ab", "1.2", "1.2.3.4", "1.2.3/..", "../1.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3 ", "1.2.3-" + string(make([]byte, 60))} {
		if IsVersion(bad) {
			t.Errorf("%q is taken for a release", bad)
		}
		if _, ok := CompareVersions(bad, "1.0.0"); ok {
			t.Errorf("%q can be compared", bad)
		}
	}
}
