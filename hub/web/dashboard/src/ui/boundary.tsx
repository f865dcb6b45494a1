import { Component, type ReactNode } from "react";
import { note } from "../lib/journal";
import { Failure } from "./kit";

/** Boundary keeps a fault of one part of the page to that part, and puts it into the journal. */
export class Boundary extends Component<{ children: ReactNode }, { error?: Error }> {
  override state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override componentDidCatch(error: Error) {
    note(error.message, "page");
  }

  override render() {
    return this.state.error ? <Failure error={this.state.error} again={() => this.setState({ error: undefined })} /> : this.props.children;
  }
}
