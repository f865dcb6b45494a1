# Enough of Homebrew's words to run the install of a formula: formula.rb FORMULA PREFIX OS CPU
require "pathname"

HOMEBREW_PREFIX = Pathname.new("/opt/homebrew")
OS, CPU = ARGV[2], ARGV[3]

class Pathname
  def install(what)
    what.each { |from, to| mkpath; (self/to).binwrite(File.binread(from)) }
  end
end

class Formula
  class << self
    attr_reader :said

    %i[desc homepage version url sha256].each { |w| define_method(w) { |v| (@said ||= {})[w] = v } }
    { on_macos: "macos", on_linux: "linux" }.each { |w, os| define_method(w) { |&b| b.call if os == OS } }
    { on_arm: "arm", on_intel: "intel" }.each { |w, cpu| define_method(w) { |&b| b.call if cpu == CPU } }
    def service(&b) = Service.new.instance_eval(&b)
    def test = nil
  end

  class Service
    def name(**names) = puts("service #{names[OS.to_sym]}")
  end

  def prefix = Pathname.new(ARGV[1])
  def bin = prefix/"bin"
  def lib = prefix/"lib"
  def opt_bin = HOMEBREW_PREFIX/"opt/tugline/bin"
  def var = HOMEBREW_PREFIX/"var"
  def generate_completions_from_executable(program, word) = puts("completions #{program.relative_path_from(prefix)} #{word}")
end

load ARGV[0]
Tugline.said.each { |k, v| puts "#{k} #{v}" }
Tugline.new.install
puts Tugline.new.caveats
