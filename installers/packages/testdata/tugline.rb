# Made by `make formula`; the digests are those of the release.
class Tugline < Formula
  desc "Runs coding agents and commands on your own machines"
  homepage "https://tugline.dev/"
  version "1.4.0"

  on_macos do
    on_arm do
      url "https://example.com/tugline/v1.4.0/tugline-darwin-arm64"
      sha256 "1eb3c6e51d4bc55a38f940317bdd1165f6c3e73f2691f575a88a412a5aec2cb5"
    end
    on_intel do
      url "https://example.com/tugline/v1.4.0/tugline-darwin-amd64"
      sha256 "21b48fb8f9d58f652440005bf084b4d122016c08f7602587f117a6a0609a8bf6"
    end
  end

  on_linux do
    on_arm do
      url "https://example.com/tugline/v1.4.0/tugline-linux-arm64"
      sha256 "a70403dbfdb914aa6a5604e2118da46624b90589df06a3c3c9a72e876e8f98af"
    end
    on_intel do
      url "https://example.com/tugline/v1.4.0/tugline-linux-amd64"
      sha256 "09cd68e46910616c84757eb5eaaecdee08efaf6379be45cdc1896207cf0c0cd1"
    end
  end

  def install
    bin.install Dir["tugline-*"].first => "tugline"
    # The program says by this who replaces it, and keeps its hands off.
    (lib/"tugline").mkpath
    (lib/"tugline/package.json").write <<~JSON
      {"manager":"brew","program":"#{opt_bin}/tugline"}
    JSON
    (prefix/"dev.tugline.runner.plist").write <<~PLIST
      <?xml version="1.0" encoding="UTF-8"?>
      <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
      <!-- It came with a formula; the runner has to be enrolled first. -->
      <plist version="1.0">
      <dict>
      	<key>Label</key>
      	<string>dev.tugline.runner</string>
      	<key>ProgramArguments</key>
      	<array>
      		<string>#{opt_bin}/tugline</string>
      		<string>runner</string>
      		<string>run</string>
      	</array>
      	<key>EnvironmentVariables</key>
      	<dict>
      		<key>PATH</key>
      		<string>#{HOMEBREW_PREFIX}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin</string>
      		<key>TUGLINE_SERVICE</key>
      		<string>launchd</string>
      	</dict>
      	<key>LimitLoadToSessionType</key>
      	<array>
      		<string>Aqua</string>
      		<string>Background</string>
      	</array>
      	<key>RunAtLoad</key>
      	<true/>
      	<!-- Exit 0 is the end: a runner that was sent away leaves a note and exits so. -->
      	<key>KeepAlive</key>
      	<dict>
      		<key>SuccessfulExit</key>
      		<false/>
      	</dict>
      	<!-- Jobs outlive the runner. -->
      	<key>AbandonProcessGroup</key>
      	<true/>
      	<key>ProcessType</key>
      	<string>Standard</string>
      	<key>ThrottleInterval</key>
      	<integer>10</integer>
      	<key>StandardOutPath</key>
      	<string>/dev/null</string>
      	<key>StandardErrorPath</key>
      	<string>#{var}/log/tugline.log</string>
      </dict>
      </plist>
    PLIST
    (prefix/"tugline-runner.service").write <<~UNIT
      # A runner as a service of its user.
      # It came with a formula; the runner has to be enrolled first.
      [Unit]
      Description=Tugline runner
      Documentation=https://tugline.dev/
      StartLimitIntervalSec=0

      [Service]
      # It says that it is ready once its jobs of before are found again, whether a hub is there or not.
      Type=notify
      NotifyAccess=main
      ExecStart="#{opt_bin}/tugline" runner run
      Environment="PATH=#{HOMEBREW_PREFIX}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
      # Fed while the link makes progress, and a hub that is away is progress: only a loop that
      # is stuck starves it.
      WatchdogSec=180
      Restart=always
      RestartSec=2
      # 78: the hub sent it away. A restart does not help.
      RestartPreventExitStatus=78
      # Jobs outlive the runner: they stay in its cgroup, and only its own process is ended.
      KillMode=process
      Delegate=yes
      OOMPolicy=continue
      TimeoutStopSec=30
      TasksMax=infinity

      [Install]
      WantedBy=default.target
    UNIT
    generate_completions_from_executable(bin/"tugline", "completion")
  end

  def caveats
    <<~EOS
      A machine joins a hub with a ticket from there (tugline hub ticket):
        tugline runner install --ticket - < ticket
      That starts the runner as a service of your user, too. After an upgrade run
        tugline runner install
      and the service runs the new version; jobs go on meanwhile. What jobs left in
        ~/.local/share/tugline/runner
      stays when the formula is uninstalled; first run
        tugline runner uninstall
    EOS
  end

  # The files come with the formula, with the keys that let jobs outlive the runner.
  service do
    name macos: "dev.tugline.runner", linux: "tugline-runner"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tugline version")
    assert_match "managed by brew", shell_output("#{bin}/tugline runner doctor", 1)
  end
end
