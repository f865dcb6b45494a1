#!/bin/sh
# Stands in for an agent's CLI and speaks as it does: the real ones need an account. The
# prompt chooses what it plays.
case "$1" in
--version) echo "codex-cli 0.136.0"; exit 0 ;;
login) exit 0 ;;
esac
id=019c5b8e-0000-7000-8000-$(date +%N | cut -c1-9)$(($$ % 900 + 100))
next=no
for a in "$@"; do
	[ $next = yes ] && [ "$a" != --json ] && { id=$a; next=done; }
	[ "$a" = resume ] && next=yes
done
mkdir -p "$CODEX_HOME/sessions/2026/12/01"
echo '{"type":"turn_context","payload":{"model":"gpt-5.5"}}' >> "$CODEX_HOME/sessions/2026/12/01/rollout-x-$id.jsonl"
prompt=$(cat)
say() { printf '%s\n' "$1"; sleep ${PACE:-0.3}; }
say '{"type":"thread.started","thread_id":"'$id'"}'
say '{"type":"turn.started"}'
say '{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"**Looking for the cause**\n\nThe greeting is in `main.go`; I will read it first and then change it."}}'
say '{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"I will look at the program first, then change the greeting and add a test.\n\n1. read `main.go`\n2. change it\n3. run the tests"}}'
say '{"type":"item.started","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc '"'"'cat main.go'"'"'","aggregated_output":"","exit_code":null,"status":"in_progress"}}'
say '{"type":"item.completed","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc '"'"'cat main.go'"'"'","aggregated_output":"package main\n\nfunc main() {\n\tprintln(\"hello\")\n}\n","exit_code":0,"status":"completed"}}'
say '{"type":"item.completed","item":{"id":"item_3","type":"todo_list","items":[{"text":"read main.go","completed":true},{"text":"change the greeting","completed":false},{"text":"run the tests","completed":false}]}}'
case "$prompt" in *slowly*) i=0; while [ $i -lt 600 ]; do i=$((i+1)); PACE=2 say '{"type":"item.completed","item":{"id":"item_s'$i'","type":"agent_message","text":"Step '$i': still at it."}}'; done ;; esac
cat > main.go <<'G'
package main

import "fmt"

// greeting is what is said to whoever starts the program.
func greeting(name string) string {
	return fmt.Sprintf("hello, %s", name)
}

func main() {
	fmt.Println(greeting("world"))
}
G
cat > main_test.go <<'G'
package main

import "testing"

func TestGreeting(t *testing.T) {
	if got := greeting("you"); got != "hello, you" {
		t.Fatalf("greeting = %q", got)
	}
}
G
printf '# Demo\n\nA small thing that greets.\n' > README.md
say '{"type":"item.completed","item":{"id":"item_4","type":"file_change","changes":[{"path":"main.go","kind":"update"},{"path":"main_test.go","kind":"add"},{"path":"README.md","kind":"update"}],"status":"completed"}}'
say '{"type":"item.completed","item":{"id":"item_5","type":"mcp_tool_call","server":"docs","tool":"search","arguments":{"query":"fmt.Sprintf"},"result":{"content":[{"type":"text","text":"Sprintf formats according to a format specifier."}]},"status":"completed"}}'
say '{"type":"item.completed","item":{"id":"item_6","type":"command_execution","command":"/bin/bash -lc '"'"'go test ./...'"'"'","aggregated_output":"ok  \tdemo\t0.002s\n","exit_code":0,"status":"completed"}}'
say '{"type":"item.completed","item":{"id":"item_7","type":"command_execution","command":"/bin/bash -lc '"'"'golangci-lint run'"'"'","aggregated_output":"bash: golangci-lint: command not found\n","exit_code":127,"status":"failed"}}'
git add -A >/dev/null 2>&1; git -c user.name=Agent -c user.email=agent@example.org commit -qm "Greet by name, with a test" >/dev/null 2>&1
if [ -n "$TUGLINE_ARTIFACTS" ]; then mkdir -p "$TUGLINE_ARTIFACTS"; echo '{"tests":1,"passed":1}' > "$TUGLINE_ARTIFACTS/report.json"; printf '%s' 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==' | base64 -d > "$TUGLINE_ARTIFACTS/screenshot.png"; fi
case "$prompt" in *nothing*) git reset -q --hard HEAD~1 ;; esac
say '{"type":"item.completed","item":{"id":"item_8","type":"agent_message","text":"The greeting now takes a **name**, and `TestGreeting` covers it.\n\n| file | change |\n|---|---|\n| `main.go` | uses `fmt.Sprintf` |\n| `main_test.go` | new |\n\n```go\nfmt.Println(greeting(\"world\"))\n```\n\nThe linter is not installed here, so I did not run it."}}'
say '{"type":"turn.completed","usage":{"input_tokens":20812,"cached_input_tokens":1200,"output_tokens":840}}'
