#include "keeper_client.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <sstream>

#include "common.h"

namespace rs {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Reply {
  std::string line;
  Descriptor file{-1};
};

Descriptor connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Failure(RS_CONFIG, "keeper socket path is too long: " + path);
  memcpy(address.sun_path, path.c_str(), path.size());
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{5, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw Failure(RS_IO, "keeper at " + path + ": " + errno_text(errno) +
                             "; start it with `rowstore keeper` or set keeper=none");
  return fd;
}

Reply receive(int socket) {
  char text[256] = {};
  iovec buffer{text, sizeof text - 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0)
    throw Failure(RS_IO, "the keeper did not answer within 5 s; see its log");
  int fd = -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return {text, Descriptor(fd)};
}

void refuse_unsealed(int fd, uint64_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    throw Failure(RS_CORRUPT, "the keeper's table is not sealed; restart the keeper");
  struct stat info;
  if (fstat(fd, &info) != 0 || uint64_t(info.st_size) < bytes)
    throw Failure(RS_CORRUPT, "the keeper's table is smaller than the file");
}

// A page here and there, by global row id: the keeper checked them all when it filled.
void check_sample(const Table& table, const Region& region) {
  constexpr uint64_t kSamples = 256;
  const uint64_t pages = table.pages();
  for (uint64_t k = 0; k < kSamples && k < pages; ++k) {
    const uint64_t page = mix64(k) % pages;
    if (!table.image_chunk_ok(region.data() + page * kPage, table.image_from() + page * kPage,
                              kPage))
      throw Failure(RS_CORRUPT, "the keeper's table has a bad page " + std::to_string(page));
  }
}

}  // namespace

Region region_from_keeper(const std::string& socket_path, const Table& table,
                          const std::atomic<bool>& stop,
                          const std::function<void(uint64_t done)>& on_progress) {
  const std::string question = "image " + table.identity() + "\n";
  const uint64_t bytes = table.image_end() - table.image_from();
  std::atomic<uint32_t> never{0};
  while (!stop.load()) {
    const Descriptor socket = connect_to(socket_path);
    if (send(socket.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0)
      throw Failure(RS_IO, "asking the keeper: " + errno_text(errno));
    const Reply reply = receive(socket.get());
    std::stringstream words(reply.line);
    std::string verdict;
    uint64_t done = 0;
    words >> verdict >> done;
    if (verdict == "ready" && reply.file.get() >= 0) {
      refuse_unsealed(reply.file.get(), bytes);
      Region region = Region::shared(reply.file.get(), bytes);
      check_sample(table, region);
      return region;
    }
    if (verdict != "filling") throw Failure(RS_IO, "the keeper refused: " + reply.line);
    on_progress(done);
    futex_wait(never, 0, 50 * kMs);
  }
  throw Failure(RS_RELEASED, "stopped while waiting for the keeper");
}

}  // namespace rs
