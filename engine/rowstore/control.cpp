#include "control.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace rs {

Control::Control(const std::string& path, std::function<std::string(const std::string&)> answer)
    : path_(path), answer_(std::move(answer)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Failure(RS_CONFIG, "control socket path is longer than 107 bytes: " + path);
  memcpy(address.sun_path, path.c_str(), path.size());
  unlink(path.c_str());
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // The mode is set before listening, so nobody can connect in between.
  if (socket_ < 0 || bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(socket_, 8) != 0) {
    const std::string why = errno_text(errno);
    if (socket_ >= 0) close(socket_);
    throw Failure(RS_CONFIG, "control socket " + path + ": " + why +
                                 "; the directory must exist and be writable");
  }
  thread_ = std::thread([this] { run(); });
}

Control::~Control() {
  stop_.store(true);
  thread_.join();
  close(socket_);
  unlink(path_.c_str());
}

void Control::run() {
  block_signals();
  name_thread("rs-control");
  while (!stop_.load()) {
    pollfd waiting{socket_, POLLIN, 0};
    if (poll(&waiting, 1, 100) <= 0) continue;
    const int client = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const timeval limit{1, 0};  // a silent client must not keep others out
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    serve(client);
    close(client);
  }
}

void Control::serve(int client) {
  char line[256];
  size_t used = 0;
  while (used < sizeof line - 1) {
    const ssize_t n = recv(client, line + used, sizeof line - 1 - used, 0);
    if (n <= 0) return;
    used += size_t(n);
    if (memchr(line, '\n', used)) break;
  }
  const std::string text(line, used);
  const std::string reply = answer_(text.substr(0, text.find('\n'))) + "\n";
  for (size_t sent = 0; sent < reply.size();) {
    const ssize_t n = send(client, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += size_t(n);
  }
}

}  // namespace rs
